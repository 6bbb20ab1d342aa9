// Package conformance holds Watermill's own test suite for our two Pub/Subs, and tests of Watermill's
// Router and CQRS on them. It has no other code, because outbox and workers do not import each other.
package conformance_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/taskledger/taskledger/internal/watermilltest"
)

// bundle is a kit with the two Pub/Subs.
type bundle struct{ *watermilltest.Kit }

func newBundle(t testing.TB) *bundle { return &bundle{watermilltest.Start(t)} }

// restartCommand returns a command that restarts the NATS server, as Watermill's suite requires: this test
// program, which sends a request to the test.
func (b *bundle) restartCommand() []string {
	b.T.Helper()
	path := filepath.Join(b.T.TempDir(), "restart")
	listener, err := net.Listen("unix", path)
	if err != nil {
		b.T.Fatal(err)
	}
	ended := make(chan struct{})
	b.T.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b.Server.Stop()
			answer := "restarted"
			if err := b.Server.Restart(); err != nil {
				answer = err.Error()
			}
			_, _ = fmt.Fprint(conn, answer)
			_ = conn.Close()
		}
	}()
	return []string{os.Args[0], "restart", path}
}

// TestMain is the other end of restartCommand.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "restart" {
		conn, err := net.Dial("unix", os.Args[2])
		if err == nil {
			answer := make([]byte, 1024)
			n, _ := conn.Read(answer)
			if string(answer[:n]) == "restarted" {
				return
			}
			err = fmt.Errorf("%s", answer[:n])
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
