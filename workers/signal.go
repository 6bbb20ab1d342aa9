package workers

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// SignalContext returns the context to call [Pool.Run] with: the first SIGINT or SIGTERM ends it, so
// that the pool drains; from then on signals do what they do to any process, so that the second one
// ends it at once. What was at work then runs again elsewhere, once it is missed: that uses no
// attempt, as nothing here does, but it takes AckWait.
//
// stop ends the context as well, and gives the signals back. A program that listens for these signals
// elsewhere too is not ended by the second one.
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
		case s := <-signals: // the second one was so quick that it came here
			end(s)
		default:
		}
	}()
	return ctx, stop
}

// end ends the process as a signal does.
func end(s os.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(s) == nil {
		return
	}
	os.Exit(1) // where processes cannot send themselves signals
}
