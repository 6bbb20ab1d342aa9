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

// SignalContext returns a context for [Pool.Run] that the first SIGINT or SIGTERM cancels, so that the pool drains. The
// second one ends the process at once, even if it was ignored when the process began, as in the background of a shell.
// Attempts that were running are then repeated elsewhere after LeaseTTL, without using an attempt. The first signal
// counts once if it comes again within 500 ms.
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
			end(awaitSecond(signals, first))
		case <-ctx.Done():
			stop()
			signal.Stop(signals)
		}
	}()
	return ctx, stop
}

// awaitSecond returns the second signal. The same signal does not count for a moment.
func awaitSecond(signals <-chan os.Signal, first os.Signal) os.Signal {
	for over := time.Now().Add(sameSignal); ; {
		if s := <-signals; s != first || time.Now().After(over) {
			return s
		}
	}
}

// end ends this process, by the signal where that is possible.
func end(s os.Signal) {
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(s) == nil {
		time.Sleep(100 * time.Millisecond) // the signal has no effect if it was ignored when the process began
	}
	os.Exit(1)
}
