package sdnotify_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/taskledger/taskledger/internal/sdnotify"
)

// Without systemd, or with a watchdog for another process, nothing is reported. Child processes get no variable of it.
func TestWithoutSystemd(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no systemd":      {},
		"no socket":       {"WATCHDOG_USEC": "1000"},
		"another process": {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
		"not a number":    {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "soon"},
	} {
		for key, value := range env {
			t.Setenv(key, value)
		}
		n := sdnotify.New()
		n.KeepAlive(t.Context()) // returns
		if err := n.Ready(t.Context()); (err != nil) != (env["NOTIFY_SOCKET"] != "") {
			t.Errorf("%s: %v", name, err)
		}
		for _, key := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
			if value, isSet := os.LookupEnv(key); isSet {
				t.Errorf("%s: %s is still %s", name, key, value)
			}
		}
	}
	t.Setenv("NOTIFY_SOCKET", "/nonexistent")
	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		sdnotify.New().KeepAlive(ctx)
		close(ended)
	}()
	cancel()
	<-ended
}
