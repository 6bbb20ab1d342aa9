// Bench compares taskledger with its peers on servers of its own, fsync on: each system through
// its public API, as its own documentation advises, all with the same settings of PostgreSQL and
// JetStream, interleaved in one run.
//
//	cd bench && go run . -quick
//
// It prints medians with their spread and the ratio of ours to each peer's; -o json prints the
// same for programs. ../docs/benchmarks.md tells how to read it and holds the last full run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/taskledger/taskledger/internal/pgserver"
)

// Exit codes, those of the command taskledger.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 5
	exitInterrupted = 130
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, errHelp):
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	return execute(ctx, c, stdout, stderr)
}

// execute measures and prints: what was measured before a failure or an interruption too, marked
// as partial.
func execute(ctx context.Context, c config, stdout, stderr io.Writer) int {
	report, err := measureAll(ctx, c, newProgress(stderr))
	if err != nil {
		report.Partial = err.Error()
	}
	if len(report.samples) > 0 || err == nil {
		err = errors.Join(err, report.print(c, stdout))
	}
	var none *pgserver.NoBinariesError
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "bench: interrupted; the servers and databases of this run are removed")
		return exitInterrupted
	case errors.As(err, &none):
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return exitUnavailable
	}
	_, _ = fmt.Fprintln(stderr, "bench:", err)
	return exitFailed
}
