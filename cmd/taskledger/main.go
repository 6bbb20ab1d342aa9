// Command taskledger runs and looks at a ledger of tasks; see `taskledger help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // for machines without the time zones that schedules name
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals // asks for an orderly end
		cancel()
		<-signals // does not want to wait for it
		os.Exit(exitFailed)
	}()
	os.Exit(newApp().Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
