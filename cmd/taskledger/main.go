// Command taskledger runs and operates a ledger of tasks; see `taskledger help`.
package main

import (
	"context"
	"os"
	"time"
	_ "time/tzdata" // for machines without the time zones of schedules

	"github.com/taskledger/taskledger/workers"
)

// stopTimeout is how long a command may take to end after a signal. It is less than the 30 s after which Kubernetes
// kills, and more than all parts of serve take together unless a server hangs.
const stopTimeout = 25 * time.Second

func main() {
	ctx, _ := workers.SignalContext(context.Background()) // until the process ends
	a := newApp()
	context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, a.endLate) })
	os.Exit(a.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// endLate ends the process if a part of it has not ended in time after a signal. Everything that the ledger has
// acknowledged is safe, as after SIGKILL.
func (a *app) endLate() {
	a.log.Error("the process ends although a part of it has not ended in time after the signal", "waited", stopTimeout)
	os.Exit(exitFailed)
}
