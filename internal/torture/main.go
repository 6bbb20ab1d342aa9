// Command torture runs the whole product in processes of its own, breaks everything around it, and proves from a
// recorded history that the promises of the ledger held:
//
//	go run ./internal/torture -duration 5m -seed 7
//	go run ./internal/torture -duration 1m -faults kill,pause,promote
//
// # The stage
//
// A PostgreSQL primary with a streaming standby, three nats-server processes whose stream has three replicas, PgBouncer
// if it is installed, and a process for each part of the product: 2 producers, 2 relays (with dispatcher), 3 workers, 2
// projectors, 2 schedulers and a subscriber. Each uses its role's login and NATS user. Every connection goes through a
// [link], which can be cut, delayed and reset.
//
// # The nemesis
//
// A [fault] consists of a begin and a cure. The [nemesis] draws faults, targets and times from a seed; sometimes two
// faults act at once. The same seed gives the same acts, but not the same interleaving.
//
// # The history
//
// Each part appends its actions to its own file, one line before and one after each call, so that a line is never lost
// with its process. Effects of handlers are rows without a unique constraint: only the ledger prevents a second effect.
// At the end everything is cured, production stops, and all tasks must end.
//
// # The checker
//
// A [rule] is a promise that the history proves or refutes. The command prints a table with each fault and the longest
// time without a completion, and each loss, double or wrong order. It fails with the seed and the last acts. The
// checker itself is tested: TestMutants runs it against mutants of the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/taskledger/taskledger/workers"
)

func main() {
	if isPart() {
		os.Exit(runPart())
	}
	ctx, stop := workers.SignalContext(context.Background())
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the command line and returns the exit code: 0 ok, 1 a promise was broken or the run failed, 2 usage.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	c := config{log: out}
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.DurationVar(&c.duration, "duration", time.Minute, "time of production and faults; cures and checks follow")
	flags.Uint64Var(&c.seed, "seed", 0, "seed of the acts (default: random)")
	flags.StringVar(&c.faults, "faults", "", "comma-separated names of faults (default: all)")
	flags.IntVar(&c.rate, "rate", defaultRate, "tasks a second that each producer enqueues")
	flags.DurationVar(&c.patience, "patience", 2*time.Minute, "time until all tasks have ended, after the last cure")
	flags.StringVar(&c.pgbouncer, "pgbouncer", "pgbouncer", "PgBouncer's `binary`; without it no part uses a pooler")
	flags.StringVar(&c.overload, "overload", "", "overload policy with which producers exceed the workers threefold")
	flags.StringVar(&c.keep, "keep", "", "directory that keeps histories and logs (default: removed at the end)")
	list := flags.Bool("list", false, "print the faults and end")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *list {
		for _, f := range faults {
			_, _ = fmt.Fprintf(out, "%-16s %s\n", f.name, f.what)
		}
		return 0
	}
	if err := c.validate(); err != nil {
		_, _ = fmt.Fprintln(errs, "torture:", err)
		return 2
	}
	report, err := torture(ctx, c)
	if err != nil {
		_, _ = fmt.Fprintln(errs, "torture:", err)
		return 1
	}
	report.print(out)
	if len(report.violations) > 0 {
		return 1
	}
	return 0
}
