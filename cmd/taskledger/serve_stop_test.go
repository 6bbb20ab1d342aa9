package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// serve ends after SIGTERM, within a bound, although its database has stopped answering.
func TestServeEndsWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	freezer, address := servicetest.NewFreezingProxy(t, ledgertest.URL(t, "relay"))
	cmd := exec.CommandContext(t.Context(), "taskledger", "serve", "--listen", "127.0.0.1:0", "--http-anonymous")
	cmd.Env = append(os.Environ(), envDatabaseURL+"="+address, envNATSURL+"="+server.URL())
	output, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	isReady := sync.OnceFunc(func() {
		freezer.Freeze()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			t.Log(lines.Text())
			if strings.Contains(lines.Text(), "relay has the lease") {
				isReady()
			}
		}
	}()
	select {
	case <-ended:
		_ = cmd.Wait() // an orderly end and one at the bound are both right
	case <-time.After(stopTimeout + patience):
		_ = cmd.Process.Kill()
		t.Fatal("serve does not end")
	}
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("serve ended with %v", cmd.ProcessState)
	}
}
