// Command taskledger runs and looks at a ledger of tasks; see `taskledger help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The first signal asks for an orderly end; the second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(newApp().Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
