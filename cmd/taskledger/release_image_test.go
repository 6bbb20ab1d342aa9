package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// checkContainer runs the image with Docker or Podman, whichever works: without a volume, with a read-only root and no
// capabilities. It is healthy, runs as user 65532, and SIGTERM ends it with exit code 0.
func checkContainer(t *testing.T, image string) {
	t.Helper()
	engine := ""
	for _, name := range []string{"docker", "podman"} {
		if exec.CommandContext(t.Context(), name, "info").Run() == nil {
			engine = name
			break
		}
	}
	if engine == "" {
		t.Log("the image was not run: neither docker nor podman works")
		return
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), engine, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", engine, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	const tag = "taskledger:v0.0.1"
	if out := run("load", "-i", image); !strings.HasSuffix(out, tag) {
		t.Errorf("the image's name is not %s:\n%s", tag, out)
	}
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := unused.Addr().String()
	_ = unused.Close()
	id := run("run", "-d", "--read-only", "--cap-drop=all", "--network=host",
		"--env=DATABASE_URL="+ledgertest.URL(t, "relay"), tag, "serve", "--listen", address)
	id = id[strings.LastIndex(id, "\n")+1:]
	t.Cleanup(func() {
		for _, args := range [][]string{{"rm", "-f", "-v", id}, {"rmi", tag}} {
			if out, err := exec.Command(engine, args...).CombinedOutput(); err != nil {
				t.Errorf("%s %q: %v\n%s", engine, args, err, out)
			}
		}
	})
	check := []string{"exec", id, "/taskledger", "serve", "--check", "--listen", address}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		out, err := exec.CommandContext(t.Context(), engine, check...).CombinedOutput()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not healthy: %v\n%s\n%s", err, out, run("logs", id))
		}
	}
	process, err := os.Stat("/proc/" + run("inspect", "--format", "{{.State.Pid}}", id))
	if err != nil {
		t.Fatal(err)
	}
	if user := process.Sys().(*syscall.Stat_t).Uid; user != 65532 {
		t.Errorf("runs as user %d", user)
	}
	run("stop", id)
	if code := run("inspect", "--format", "{{.State.ExitCode}}", id); code != "0" {
		t.Errorf("exit code %s after stop:\n%s", code, run("logs", id))
	}
	t.Logf("%s has run the image", engine)
}
