package workers_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/workers"
)

// A program that sends a signal to a process and to its group does not kill a worker: the same signal twice within a
// moment counts once.
func TestSameSignalTwiceCountsOnce(t *testing.T) {
	ctx, stop := workers.SignalContext(t.Context())
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one would end this process
		if err := self.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
	}
}
