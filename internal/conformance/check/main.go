// Command check checks a client of the work protocol: see package conformance.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/taskledger/taskledger/internal/conformance"
)

func main() {
	only := flag.String("only", "", "a part of the names of the scenarios to run")
	dir := flag.String("dir", "", "working directory of the client")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: check [-only NAME] [-dir DIRECTORY] -- COMMAND [ARGUMENT...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed := 0
	for _, r := range conformance.Run(ctx, conformance.Config{Command: flag.Args(), Dir: *dir, Only: *only}) {
		if len(r.Faults) == 0 {
			fmt.Fprintln(os.Stdout, "ok    ", r.Scenario)
			continue
		}
		failed++
		fmt.Fprintln(os.Stdout, "FAILED", r.Scenario)
		for _, fault := range r.Faults {
			fmt.Fprintln(os.Stdout, "       ", fault)
		}
		if r.Log != "" {
			fmt.Fprintf(os.Stdout, "        output of the client:\n%s\n", r.Log)
		}
	}
	if failed > 0 {
		fmt.Fprintln(os.Stdout, failed, "scenarios have failed")
		os.Exit(1)
	}
}
