package workers

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is the time within which a signal that comes twice counts once: timeout(1) of coreutils and some shells
// send one to a process and to its group.
const sameSignal = 500 * time.Millisecond

// SignalContext returns a context for [Pool.Run] that the first SIGINT or SIGTERM cancels, so that the pool drains.
// From then on signals have their default effect, so the second one ends the process at once. Attempts that were
// running are then repeated elsewhere after AckWait, without using an attempt. The first signal counts once if it comes
// again within 500 ms.
//
// stop cancels the context as well, and stops catching the signals. A second signal does not end a program that also
// catches these signals elsewhere.
func SignalContext(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case first := <-signals:
			stop()
			awaitOther(signals, first)
		case <-ctx.Done():
			stop()
		}
		signal.Stop(signals)
		select {
		case s := <-signals: // the second one arrived before signal.Stop
			end(s)
		default:
		}
	}()
	return ctx, stop
}

// awaitOther ignores the same signal for a moment. A different signal ends the process.
func awaitOther(signals <-chan os.Signal, first os.Signal) {
	for over := time.After(sameSignal); ; {
		select {
		case s := <-signals:
			if s != first {
				signal.Reset(os.Interrupt, syscall.SIGTERM)
				end(s)
			}
		case <-over:
			return
		}
	}
}

// end sends a signal to this process.
func end(s os.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(s) == nil {
		return
	}
	os.Exit(1) // on systems where a process cannot signal itself
}
