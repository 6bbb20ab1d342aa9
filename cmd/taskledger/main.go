// Command taskledger runs and looks at a ledger of tasks; see `taskledger help`.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // for machines without the time zones that schedules name

	"github.com/taskledger/taskledger/workers"
)

func main() {
	ctx, _ := workers.SignalContext(context.Background()) // to the end of the process
	os.Exit(newApp().Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
