package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// serve reports to systemd that it is alive, that it has started, and that it stops. The watchdog is fed until the end.
func TestServeReportsToSystemd(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	dir, err := os.MkdirTemp("", "sd") // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	cmd := exec.CommandContext(t.Context(), "taskledger", "serve")
	cmd.Env = append(os.Environ(), envDatabaseURL+"="+ledgertest.URL(t, "relay"), envNATSURL+"="+server.URL(),
		"NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=100000")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	next := func() string {
		t.Helper()
		message := make([]byte, 100)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	await := func(want string) {
		t.Helper()
		for have := ""; have != want; {
			if have = next(); have != want && have != "WATCHDOG=1" {
				t.Fatalf("%s before %s", have, want)
			}
		}
	}
	await("READY=1")
	for range 3 {
		await("WATCHDOG=1")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
