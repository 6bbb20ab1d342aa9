package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/cmd/taskledger/internal/demo"
	"github.com/taskledger/taskledger/internal/embedded"
)

// demoFlags are the options of demo.
type demoFlags struct {
	orders   int
	once     bool
	chaos    bool
	binaries string
}

func (a *app) newDemoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play a shop with servers of its own, make trouble, and prove that each coupon was sent once",
		Long: `Play a shop with servers of its own, in a temporary directory: whatever DATABASE_URL says is not
touched. Orders are placed by concurrent transactions, some of them rolled back; each enqueues
a task that sends a coupon. Two of a hundred are refused twice and sent at the third attempt; one
is refused for ever, and ends dead. Meanwhile workers and the relay are killed with SIGKILL, a worker
is frozen into a zombie, messages are published and delivered twice, and JetStream loses its
store. At the end SQL proves that every committed order has exactly one coupon, and folding
all events that the projection is right.

It ends with 0 only if all of that holds. Unless --once is given it stays up afterwards, with
relay, projector and workers; the other commands attach to it (if nothing else runs in the data
directory).`,
		Example: "  taskledger demo\n  taskledger demo --once --orders 10000 -o json",
		Args:    exactArgs(0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	cmd.Flags().IntVar(&f.orders, "orders", 2000, "how many orders are committed")
	cmd.Flags().BoolVar(&f.once, "once", false, "end after the proof")
	cmd.Flags().BoolVar(&f.chaos, "chaos", true, "make trouble")
	cmd.Flags().StringVar(&f.binaries, "postgres-binaries", "", "`directory` of postgres and initdb (default: searched)")
	return cmd
}

// newDemoChildCommand is what the demo's child processes run.
func (a *app) newDemoChildCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "demo-child ROLE NAME",
		Hidden: true,
		Args:   exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.RunChild(cmd.Context(), args[0], args[1], a.stdin, a.stdout, a.stderr)
		},
	}
}

func (a *app) demo(ctx context.Context, f demoFlags) error {
	if f.orders < 1 || f.orders > 1_000_000 {
		return usagef("--orders must be 1 to 1000000, not %d", f.orders)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := demo.Config{
		Orders: f.orders, Chaos: f.chaos, Binaries: f.binaries, Child: []string{self, "demo-child"},
		View: a.stderr, Terminal: a.config.output == formatTable && a.onTerminal(), Started: a.announceDemo,
	}
	printed := false
	show := func(r demo.Report) error {
		printed = true
		return a.print(r, func(w io.Writer) { renderDemo(w, r) })
	}
	if !f.once {
		c.Stay = func(ctx context.Context, r demo.Report) {
			if show(r) == nil {
				fmt.Fprintf(a.stderr, "\nEverything stays up: servers, relay, projector, and workers for coupon.send. In another terminal:\n"+
					"  taskledger status --data-dir %[1]s\n  taskledger enqueue coupon.send B000001 --args '{\"customer\":\"you\",\"cents\":500}' --data-dir %[1]s\n  taskledger task list --limit 5 --data-dir %[1]s\n  taskledger task dead --data-dir %[1]s\n"+
					"  taskledger task history coupon.send A000000 --data-dir %[1]s\nCtrl-C ends them.\n", a.config.dataDir)
			}
			<-ctx.Done()
		}
	}
	r, err := demo.Run(ctx, c)
	if err != nil {
		return err
	}
	if !printed {
		if err := show(r); err != nil {
			return err
		}
	}
	if !r.OK {
		return failf(exitIntegrity, "the demo does not hold: %s", strings.Join(r.Failures, "; "))
	}
	return nil
}

// announceDemo makes the demo's servers known to the other commands, unless others are.
func (a *app) announceDemo(databaseURL, natsURL string) (ended func(), err error) {
	if _, err := embedded.Attach(a.config.dataDir); err == nil {
		fmt.Fprintf(a.stderr, "other servers run in %s: name these with DATABASE_URL\n", a.config.dataDir)
		return func() {}, nil
	}
	withdraw, err := embedded.Announce(a.config.dataDir, databaseURL, natsURL)
	if err != nil {
		return nil, err
	}
	return func() { _ = withdraw() }, nil
}

// onTerminal reports whether what is written to stderr can be redrawn.
func (a *app) onTerminal() bool {
	r, ok := a.stderr.(*redactor)
	if !ok {
		return false
	}
	file, ok := r.to.(*os.File)
	if !ok || a.getenv("TERM") == "dumb" || a.getenv("TERM") == "" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func renderDemo(w io.Writer, r demo.Report) {
	for _, t := range r.Troubles {
		fmt.Fprintf(w, "trouble: %s\n", t)
	}
	if len(r.Troubles) > 0 {
		fmt.Fprintln(w)
	}
	verdict := "every committed order has exactly one coupon, and the projection is what its events say"
	if r.Dead > 0 {
		verdict = "every committed order has exactly one coupon, but for the one that is refused for ever; and the projection is what its events say"
	}
	if !r.OK {
		verdict = "NOT: " + strings.Join(r.Failures, "; ")
	}
	renderFields(w,
		[2]string{"orders committed", count(r.OrdersCommitted)},
		[2]string{"tasks", count(r.Tasks)},
		[2]string{"succeeded", count(r.Succeeded)},
		[2]string{"coupons", count(r.Coupons)},
		[2]string{"succeeded at the third attempt", count(r.Retried)},
		[2]string{"dead after three", count(r.Dead)},
		[2]string{"lost", count(r.Lost)},
		[2]string{"doubled", count(r.Doubled)},
		[2]string{"from rolled-back orders", fmt.Sprintf("%s of %s", count(r.Ghosts), count(r.OrdersRolledBack))},
		[2]string{"enqueued twice", count(r.EnqueuedTwice)},
		[2]string{"slots of the periodic task", fmt.Sprintf("%s, done %s times", count(r.Slots), count(r.TillCounts))},
		[2]string{"redelivered", count(r.Redelivered)},
		[2]string{"fenced", count(r.Fenced)},
		[2]string{"processes killed", count(r.Kills)},
		[2]string{"stream wiped", count(r.StreamWipes)},
		[2]string{"events", count(r.Events)},
		[2]string{"enqueue to done", fmt.Sprintf("p50 %.1f ms, p99 %.1f ms; while calm p50 %.1f ms, p99 %.1f ms", r.P50, r.P99, r.P50Calm, r.P99Calm)},
		[2]string{"projection equal", fmt.Sprint(r.ProjectionEqual)},
		[2]string{"took", fmt.Sprintf("%.0f s", r.Seconds)},
		[2]string{"proved", verdict},
	)
}
