package systemtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/longtest"
)

func TestMain(m *testing.M) {
	code := longtest.Run(m)
	_ = os.RemoveAll(command.dir)
	os.Exit(code)
}

// command is the program taskledger, for all tests.
var command struct {
	once sync.Once
	dir  string
	err  error
}

// buildCommand builds the program taskledger, once, and returns its path.
func buildCommand(tb testing.TB) string {
	tb.Helper()
	command.once.Do(func() {
		if command.dir, command.err = os.MkdirTemp("", "taskledger-command-"); command.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", command.dir, "./cmd/taskledger")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			command.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if command.err != nil {
		tb.Fatal(command.err)
	}
	return filepath.Join(command.dir, "taskledger")
}
