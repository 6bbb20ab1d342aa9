package main

import (
	"bufio"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/natsserver"
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
	address, freeze := freezingProxy(t, ledgertest.URL(t, "relay"))
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
		freeze()
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

// freezingProxy returns the address of a proxy of the database, whose connections transfer nothing any more after
// freeze.
func freezingProxy(t *testing.T, database string) (address string, freeze func()) {
	t.Helper()
	target, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	frozen, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over); listener.Close() })
	pump := func(to, from net.Conn) {
		defer to.Close()
		for buffer := make([]byte, 32<<10); ; {
			n, err := from.Read(buffer)
			select {
			case <-frozen:
				<-over
			default:
			}
			if err != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	host := target.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", host)
			if err != nil {
				_ = client.Close()
				continue
			}
			go pump(onward, client)
			go pump(client, onward)
		}
	}()
	target.Host = listener.Addr().String()
	return target.String(), sync.OnceFunc(func() { close(frozen) })
}
