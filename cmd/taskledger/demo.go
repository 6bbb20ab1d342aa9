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

// demoFlags are the flags of the command demo.
type demoFlags struct {
	orders   int
	once     bool
	chaos    bool
	binaries string
	noFetch  bool
}

func newDemoCommand(a *app) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a shop on its own servers, make trouble, and prove that each coupon was sent once",
		Long: `Run a shop on its own servers, in a temporary directory. DATABASE_URL is not used.

Concurrent transactions place orders; some of them roll back. Each transaction enqueues a task that
sends a coupon. The shop's partner refuses two of a hundred coupons twice, so that the third attempt
sends them. It always refuses one coupon, whose task ends dead.

Meanwhile workers and the relay are killed with SIGKILL, a worker is frozen until it is a zombie,
messages are published and delivered twice, and JetStream loses its store.

At the end SQL proves that every committed order has exactly one coupon, and that the projection
equals the fold of all events. The exit code is 0 only if both hold.

Without --once the demo keeps running, with relay, projector and workers. The other commands attach
to it, unless other servers run in the data directory.`,
		Example: "  taskledger demo\n  taskledger demo --once --orders 10000 -o json",
		Args:    exactArgs(0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), a, f) },
	}
	cmd.Flags().IntVar(&f.orders, "orders", 2000, "number of orders to commit")
	cmd.Flags().BoolVar(&f.once, "once", false, "exit after the proof")
	cmd.Flags().BoolVar(&f.chaos, "chaos", true, "make trouble")
	cmd.Flags().StringVar(&f.binaries, "postgres-binaries", "", "`directory` of postgres and initdb (default: search)")
	addNoFetchFlag(cmd, &f.noFetch)
	return cmd
}

// newDemoChildCommand returns the hidden command of the demo's child processes.
func newDemoChildCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-child ROLE NAME",
		Hidden: true,
		Args:   exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.RunChild(cmd.Context(), args[0], args[1], a.stdin, a.stdout, a.stderr)
		},
	}
}

func runDemo(ctx context.Context, a *app, f demoFlags) error {
	if f.orders < 1 || f.orders > 1_000_000 {
		return usagef("--orders must be between 1 and 1000000, got %d", f.orders)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := demo.Config{
		Orders: f.orders, Chaos: f.chaos, Binaries: f.binaries, Fetch: a.fetchPostgres(f.noFetch),
		Child: []string{self, "demo-child"},
		View:  a.stderr, Terminal: a.config.output == formatTable && a.onTerminal(),
		Started: func(databaseURL string, natsURLs map[string]string) (func(), error) {
			return announceDemo(a, databaseURL, natsURLs)
		},
	}
	printed := false
	show := func(r demo.Report) error {
		printed = true
		return a.print(r, func(w io.Writer) { renderDemo(w, r) })
	}
	if !f.once {
		c.Stay = func(ctx context.Context, r demo.Report) {
			if show(r) == nil {
				fmt.Fprintf(a.stderr, demoRunning, a.config.dataDir)
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
		return failf(exitIntegrity, "the proof failed: %s", strings.Join(r.Failures, "; "))
	}
	return nil
}

// demoRunning is printed when the demo keeps running. Its argument is the data directory.
const demoRunning = `
Servers, relay, projector and workers for coupon.send keep running. In another terminal:
  taskledger status --data-dir %[1]s
  taskledger enqueue coupon.send B000001 --args '{"customer":"you","cents":500}' --data-dir %[1]s
  taskledger show tasks --limit 5 --data-dir %[1]s
  taskledger show dead --data-dir %[1]s
  taskledger history coupon.send A000000 --data-dir %[1]s
Ctrl-C stops them.
`

// announceDemo announces the demo's servers to the other commands. If other servers run in the data
// directory, it prints a note and announces nothing.
func announceDemo(a *app, databaseURL string, natsURLs map[string]string) (stopping func(), err error) {
	if _, err := embedded.Attach(a.config.dataDir); err == nil {
		fmt.Fprintf(a.stderr, "other servers run in %s; set DATABASE_URL to reach the demo's\n", a.config.dataDir)
		return func() {}, nil
	}
	withdraw, err := embedded.Announce(a.config.dataDir, embedded.Announcement{
		DatabaseURL: databaseURL, NATSURLs: natsURLs,
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = withdraw() }, nil
}

// onTerminal reports whether stderr is a terminal that can be redrawn.
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
	verdict := "every committed order has exactly one coupon"
	if r.Dead > 0 {
		verdict += ", except the order whose coupon is always refused"
	}
	verdict += "; the projection equals the fold of its events"
	if !r.OK {
		verdict = "FAILED: " + strings.Join(r.Failures, "; ")
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
		[2]string{
			"firings of the periodic task", fmt.Sprintf("%s, counted %s times", count(r.Firings), count(r.TillCounts)),
		},
		[2]string{"taken over", count(r.TakenOver)},
		[2]string{"fenced", count(r.Fenced)},
		[2]string{"processes killed", count(r.Kills)},
		[2]string{"stream wiped", count(r.StreamWipes)},
		[2]string{"events", count(r.Events)},
		[2]string{"enqueue to done", fmt.Sprintf("p50 %.1f ms, p99 %.1f ms; outside trouble p50 %.1f ms, p99 %.1f ms",
			r.P50, r.P99, r.P50Calm, r.P99Calm)},
		[2]string{"projection equal", fmt.Sprint(r.ProjectionEqual)},
		[2]string{"duration", fmt.Sprintf("%.0f s", r.Seconds)},
		[2]string{"proof", verdict},
	)
}
