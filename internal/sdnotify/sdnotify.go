// Package sdnotify reports the state of this process to systemd, as sd_notify(3) specifies. Without systemd it does
// nothing.
package sdnotify

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"
)

// Notifier reports to systemd. It is safe for concurrent use.
type Notifier struct {
	address  string        // "": this process was not started by systemd
	watchdog time.Duration // 0: none
}

// New reads the variables that systemd sets, and removes them, so that child processes do not report in place of this
// one.
func New() Notifier {
	n := Notifier{address: os.Getenv("NOTIFY_SOCKET")}
	pid := os.Getenv("WATCHDOG_PID")
	micros, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err == nil && micros > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(micros) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // fails for an invalid name only
	}
	return n
}

// Ready reports that this process has started.
func (n Notifier) Ready(ctx context.Context) error { return n.send(ctx, "READY=1") }

// Stopping reports that this process shuts down.
func (n Notifier) Stopping(ctx context.Context) error { return n.send(ctx, "STOPPING=1") }

// KeepAlive reports that this process is alive, twice in the time after which systemd kills it, until ctx is done. It
// returns at once if there is no watchdog.
func (n Notifier) KeepAlive(ctx context.Context) {
	if n.watchdog == 0 || n.address == "" {
		return
	}
	ticker := time.NewTicker(max(n.watchdog/2, time.Microsecond))
	defer ticker.Stop()
	for {
		_ = n.send(ctx, "WATCHDOG=1") // sent again soon
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (n Notifier) send(ctx context.Context, state string) error {
	if n.address == "" {
		return nil
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixgram", n.address)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	if closeErr := conn.Close(); err == nil {
		err = closeErr
	}
	return err
}
