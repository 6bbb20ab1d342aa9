// Command taskledger runs and operates a ledger of tasks; see `taskledger help`.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // for machines without the time zones of schedules

	"github.com/taskledger/taskledger/workers"
)

func main() {
	ctx, _ := workers.SignalContext(context.Background()) // until the process ends
	os.Exit(newApp().Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
