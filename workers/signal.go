package workers

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// SignalContext returns a context for [Pool.Run] that the first SIGINT or SIGTERM cancels, so that the pool drains.
// From then on signals have their default effect, so the second one ends the process at once. Attempts that were
// running are then repeated elsewhere after AckWait, without using an attempt.
//
// stop cancels the context as well, and stops catching the signals. A second signal does not end a program that also
// catches these signals elsewhere.
func SignalContext(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		stop()
		signal.Stop(signals)
		select {
		case s := <-signals: // the second one arrived before signal.Stop
			end(s)
		default:
		}
	}()
	return ctx, stop
}

// end sends a signal to this process.
func end(s os.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(s) == nil {
		return
	}
	os.Exit(1) // on systems where a process cannot signal itself
}
