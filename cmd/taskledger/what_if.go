package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/cmd/taskledger/internal/whatif"
	"github.com/taskledger/taskledger/ledger"
)

func newWhatIfCommand(a *app) *cobra.Command {
	var f eventFilter
	var policy string
	cmd := &cobra.Command{
		Use:   "what-if",
		Short: "Run past failures against another retry policy, deadline or transition table",
		Long: `Run the tasks that failed, were buried or expired in a part of the ledger against another retry policy,
other deadlines or another transition table, and print what would have differed. Nothing is changed.

The policy is a file of JSON or YAML, - is standard input:

  {"retry": {"ladder": [60, 300, 1200], "attempts": 10}, "finish_by": 86400}
  {"transitions": [{"type": "released", "from": ["scheduled", "retrying"]}]}

Delays are seconds; start_by and finish_by count from the first event of a task. A simulated attempt fails if
it begins before the recorded attempt that succeeded, and else succeeds. It has an unknown outcome if the task
never succeeded and the attempt begins after its last failure. Attempts begin when they are due, and a random
delay has its mean: queues are not simulated, nor are people. A dead task stays dead, even if it was released.`,
		Example: "  taskledger what-if --policy retry.json --kind coupon.send --from 2026-11-17T00:00:00Z",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if policy == "" {
				return usagef("what-if needs --policy").hinted("run: %s --help", cmd.CommandPath())
			}
			text, err := a.readJSON(policy)
			if err != nil {
				return err
			}
			p, err := whatif.ParsePolicy(text)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				r, err := f.events(ctx, pool)
				if err != nil {
					return err
				}
				return whatIf(ctx, a, pool, r, p)
			})
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "", "`FILE` with the policy")
	f.addRange(cmd)
	cmd.Flags().StringArrayVar(&f.kinds, "kind", nil, "only tasks of this kind; may be repeated")
	cmd.Flags().StringVar(&f.key, "key", "", "only tasks whose KIND/BIZ_ID begins with this `prefix`")
	return cmd
}

func whatIf(ctx context.Context, a *app, db ledger.DB, r ledger.Range, p whatif.Policy) error {
	last := time.Now()
	report, err := whatif.Run(ctx, db, r, p, func(tasks int64) {
		if time.Since(last) > progressEvery && a.config.output == formatTable {
			last = time.Now()
			fmt.Fprintf(a.stderr, "simulated %s tasks\n", count(tasks))
		}
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return failf(exitFailed, "interrupted after %s tasks", count(report.Tasks))
	}
	if err != nil {
		return err
	}
	return a.print(report, func(w io.Writer) { renderWhatIf(w, report, p) })
}

func renderWhatIf(w io.Writer, r whatif.Report, p whatif.Policy) {
	fields := [][2]string{{"tasks with a failure", count(r.Tasks)}}
	if p.Retry != nil || p.StartBy > 0 || p.FinishBy > 0 {
		attempts := fmt.Sprintf("%s instead of %s (%+d)", count(r.AttemptsSimulated), count(r.AttemptsRecorded),
			r.AttemptsSimulated-r.AttemptsRecorded)
		fields = append(fields, [2]string{"saved", count(r.Saved)}, [2]string{"perhaps saved", count(r.Perhaps)},
			[2]string{"lost", count(r.Lost)}, [2]string{"attempts", attempts},
			[2]string{"succeeded earlier", shiftText(r.Earlier)}, [2]string{"succeeded later", shiftText(r.Later)})
	}
	if len(p.Transitions) > 0 {
		fields = append(fields, [2]string{"in another state", count(r.Differed)})
		for _, refused := range r.Refused {
			name := fmt.Sprintf("%s after state %s", refused.Type, refused.State)
			fields = append(fields, [2]string{"refused: " + name, count(refused.Events)})
		}
	}
	renderFields(w, fields...)
	if len(r.Examples) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable([]any{"task", "was", "attempts", "would be", "attempts", "difference"}, 3, 5)
	for _, e := range r.Examples {
		difference := ""
		switch d := e.SimulatedAt.Sub(e.RecordedAt); {
		case e.SimulatedAt.IsZero() || e.RecordedAt.IsZero():
		case d < 0:
			difference = age(-d) + " earlier"
		case d > 0:
			difference = age(d) + " later"
		}
		t.AppendRow(table.Row{plain(e.Key.String()), e.Recorded, e.AttemptsRecorded, e.Simulated, e.AttemptsSimulated,
			difference})
	}
	renderTable(w, t)
}

func shiftText(s whatif.Shift) string {
	if s.Tasks == 0 {
		return "0"
	}
	return fmt.Sprintf("%s, by %s on average and at most %s", count(s.Tasks), age(s.Mean), age(s.Max))
}
