package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

// stateFlags are the options of state.
type stateFlags struct {
	asOf   when
	kind   string
	states []string
	list   bool
	after  string
	limit  int
	utc    bool
}

func newStateCommand(a *app) *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use:   "state TIME|POSITION",
		Short: "Count or list tasks as they were at a moment in the past",
		Long: `Count the tasks of each kind by their states as they were at a time, or after the event at a position.
With --list, list the tasks in the order of their keys; with -o jsonl it streams all of them, one a line.

The events decide, in the order in which they were committed; no projector is needed. The command reads all
events up to the moment: a million tasks take some seconds. Tasks that were archived since are left out.`,
		Example: "  taskledger state 2026-11-17T09:00:00Z\n" +
			"  taskledger state 2026-11-17T09:00:00Z --kind coupon.send --list --state dead -o jsonl",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.asOf.Set(args[0]); err != nil {
				return usagef("%s", err).hinted("usage: %s", cmd.UseLine())
			}
			isLimited := cmd.Flags().Changed("limit")
			switch {
			case isLimited && f.limit < 1:
				return usagef("--limit must be at least 1, got %d", f.limit)
			case !f.list && (isLimited || f.after != "" || len(f.states) > 0):
				return usagef("--state, --after and --limit are for --list")
			case !isLimited && a.config.output == formatJSONL:
				f.limit = 0 // all
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return showStates(ctx, a, pool, f)
			})
		},
	}
	cmd.Flags().StringVar(&f.kind, "kind", "", "only tasks of this kind")
	refuseZero(cmd.Flags(), "kind")
	cmd.Flags().BoolVar(&f.list, "list", false, "list the tasks (default: count them)")
	cmd.Flags().StringArrayVar(&f.states, "state", nil, "with --list: only tasks in this state; may be repeated")
	cmd.Flags().StringVar(&f.after, "after", "", "with --list: `KIND/BIZ_ID` after which to continue")
	cmd.Flags().IntVar(&f.limit, "limit", defaultEvents, "with --list: maximum number of tasks (with -o jsonl: all)")
	addUTCFlag(cmd, &f.utc)
	return cmd
}

// countedStates is the result as JSON.
type countedStates struct {
	AsOf  ledger.Moment       `json:"as_of"`
	Tasks int64               `json:"tasks"`
	Count []ledger.StateCount `json:"counts"`
}

func showStates(ctx context.Context, a *app, db ledger.DB, f stateFlags) error {
	moment, err := f.asOf.moment(ctx, db)
	if err != nil {
		return err
	}
	if f.list {
		if err := listStates(ctx, a, db, f, moment); err != nil {
			return err
		}
		return f.noteArchived(ctx, a, db)
	}
	stop := a.busy("folding the events")
	counts, err := ledger.CountAsOf(ctx, db, moment, ledger.Kind(f.kind))
	stop()
	if err != nil {
		return err
	}
	result := countedStates{AsOf: moment, Count: append([]ledger.StateCount{}, counts...)}
	for _, c := range counts {
		result.Tasks += c.Tasks
	}
	err = printList(a, result, counts, func(w io.Writer) {
		t := newTable([]any{"kind", "state", "tasks"}, 3)
		for _, c := range counts {
			t.AppendRow(table.Row{plain(string(c.Kind)), painted(c.State), count(c.Tasks)})
		}
		t.AppendRow(table.Row{"all", "", count(result.Tasks)})
		renderTable(w, t)
	})
	if err != nil {
		return err
	}
	return f.noteArchived(ctx, a, db)
}

// noteArchived writes a note for people if tasks that were archived since are left out.
func (f stateFlags) noteArchived(ctx context.Context, a *app, db ledger.DB) error {
	l := leftOut{by: "taskledger show task --as-of " + shellWord(f.asOf.String())}
	if f.kind != "" {
		l.kinds = []ledger.Kind{ledger.Kind(f.kind)}
	}
	var err error
	if l.to, err = f.asOf.positionFrom(ctx, db); err != nil {
		return err
	}
	return l.note(ctx, a, db)
}

// listedStates is the result of --list as JSON.
type listedStates struct {
	AsOf  ledger.Moment     `json:"as_of"`
	Tasks []ledger.PastTask `json:"tasks"`
	Next  string            `json:"next,omitempty"`
}

func listStates(ctx context.Context, a *app, db ledger.DB, f stateFlags, moment ledger.Moment) error {
	filter := ledger.PastFilter{Moment: moment, Kind: ledger.Kind(f.kind)}
	if f.limit > 0 {
		filter.Limit = f.limit + 1 // one more shows whether the list ends here
	}
	for _, s := range f.states {
		filter.States = append(filter.States, ledger.State(s))
	}
	var err error
	if filter.StartAfter, err = parseTaskPlace(f.after); err != nil {
		return err
	}
	list := listedStates{AsOf: moment, Tasks: []ledger.PastTask{}}
	shown, last := 0, ledger.Key{}
	stop := sync.OnceFunc(a.busy("folding the events")) // until the first task is known
	defer stop()
	for task, err := range ledger.ListAsOf(ctx, db, filter) {
		if stop(); err != nil {
			return err
		}
		if f.limit > 0 && shown == f.limit {
			list.Next = taskPlace(last)
			break
		}
		shown, last = shown+1, task.Key
		if a.config.output == formatJSONL {
			if err := a.printJSON(task, ""); err != nil {
				return err
			}
			continue
		}
		list.Tasks = append(list.Tasks, task)
	}
	stop()
	if a.config.output != formatJSONL {
		err = a.print(list, func(w io.Writer) {
			t := newTable([]any{"kind", "biz_id", "state", "version", "attempt", "updated"}, 4, 5)
			for _, task := range list.Tasks {
				t.AppendRow(table.Row{plain(string(task.Kind)), plain(string(task.BizID)), painted(task.State),
					task.Version,
					task.Attempt, clock(task.UpdatedAt, f.utc)})
			}
			renderTable(w, t)
		})
	}
	if noteNext(a, list.Next); shown == 0 {
		fmt.Fprintln(a.stderr, "no such tasks")
	}
	return err
}
