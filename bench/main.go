// Bench compares taskledger with its peers on its own servers, with fsync on. Each system is used through its public
// API, as its documentation advises. All systems use the same settings of PostgreSQL and JetStream, and take turns in
// one run.
//
//	cd bench && go run . -quick
//
// It prints medians with their spread, and the ratio of taskledger to each peer. -o json prints the same as JSON, and
// -report writes the figures of such runs into the documentation. ../docs/benchmarks.md explains the measures and shows
// the results.
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

// Exit codes, the same as those of the command taskledger.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 5
	exitInterrupted = 130
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runRole(role))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, errHelp):
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	case len(c.report) > 0:
		if err := writeDocs(docsDir, c.report); err != nil {
			_, _ = fmt.Fprintln(stderr, "bench:", err)
			return exitFailed
		}
		return exitOK
	}
	return execute(ctx, c, stdout, stderr)
}

// execute runs the measures and prints the report. After a failure or an interruption it prints the
// figures that it has, marked as partial.
func execute(ctx context.Context, c config, stdout, stderr io.Writer) int {
	report, err := measureAll(ctx, c, newProgress(stderr))
	if err != nil {
		report.Partial = err.Error()
	}
	if len(report.samples) > 0 || err == nil {
		err = errors.Join(err, report.print(c, stdout))
	}
	var missing *pgserver.NoBinariesError
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "bench: interrupted; servers and databases of this run were removed")
		return exitInterrupted
	case errors.As(err, &missing):
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return exitUnavailable
	}
	_, _ = fmt.Fprintln(stderr, "bench:", err)
	return exitFailed
}
