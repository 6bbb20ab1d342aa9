package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger/periodic"
)

func newApplySchedulesCommand(a *app) *cobra.Command {
	var file string
	var o periodic.ApplyOptions
	cmd := &cobra.Command{
		Use:   "schedules -f FILE",
		Short: "Create and change schedules from a file, and show the differences",
		Long: `Create and change schedules from a file, YAML or JSON, and show the differences. If a schedule is
invalid, nothing changes. The format is:

  schedules:
    - name: nightly-report        # its tasks are <kind>/<name>@<firing in UTC>
      kind: report.make
      args: {of: sales}
      cron: "30 2 * * *"          # with zone; or every: 15m, with anchor; or fixed_delay: 1h
      zone: Europe/Berlin
      missed: one                 # one, skip, or all with missed_limit
      overlap: skip               # allow, or skip while the previous task is unfinished`,
		Example: "  taskledger apply schedules -f schedules.yaml --dry-run\n" +
			"  taskledger apply schedules -f schedules.yaml --prune",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("%s: --file is required", cmd.CommandPath()).hinted("usage: %s", cmd.UseLine())
			}
			schedules, err := readSchedules(a, file)
			if err != nil {
				return err
			}
			o.Actor = actorOr(o.Actor)
			return a.withDatabase(cmd.Context(), func(ctx context.Context, db *pgxpool.Pool) error {
				differences, err := periodic.Apply(ctx, db, schedules, &o)
				if err != nil {
					return err
				}
				a.wake(ctx, db)
				return printDifferences(a, differences, o.DryRun)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`file` with the schedules, or - for stdin")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show the differences and change nothing")
	cmd.Flags().BoolVar(&o.Prune, "prune", false, "delete the schedules that are not in the file")
	addActorFlag(cmd, &o.Actor)
	addReasonFlag(cmd, &o.Reason)
	return cmd
}

// readSchedules reads a file of schedules. Args in JSON keep their bytes.
func readSchedules(a *app, file string) ([]periodic.Schedule, error) {
	text, err := a.readJSON(file)
	if err != nil {
		return nil, err
	}
	return periodic.Parse(text)
}

// scheduleChanges is the JSON output of apply schedules.
type scheduleChanges struct {
	DryRun    bool                  `json:"dry_run"`
	Schedules []periodic.Difference `json:"schedules"`
}

func printDifferences(a *app, differences []periodic.Difference, dryRun bool) error {
	counts := make(map[periodic.Action]int)
	for _, d := range differences {
		counts[d.Action]++
	}
	value := scheduleChanges{dryRun, append([]periodic.Difference{}, differences...)}
	if err := printList(a, value, differences, func(w io.Writer) {
		if len(differences) == counts[periodic.Keep] {
			return
		}
		t := newTable([]any{"schedule", "action", "field", "from", "to"})
		for _, d := range differences {
			if d.Action == periodic.Keep {
				continue
			}
			name, action := plain(d.Name), string(d.Action)
			if len(d.Fields) == 0 {
				t.AppendRow(table.Row{name, action})
			}
			for _, f := range d.Fields {
				t.AppendRow(table.Row{name, action, f.Name, shorten(f.From, 40), shorten(f.To, 40)})
				name, action = "", ""
			}
		}
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if a.config.output == formatTable {
		format := "%d created, %d changed, %d deleted, %d unchanged\n"
		if dryRun {
			format = "dry run: %d to create, %d to change, %d to delete, %d unchanged\n"
		}
		fmt.Fprintf(a.stderr, format,
			counts[periodic.Create], counts[periodic.Change], counts[periodic.Delete], counts[periodic.Keep])
	}
	return nil
}
