package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

func newTaskListCommand(a *app) *cobra.Command {
	var kind, state string
	var limit int
	var after int64
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Long: `List tasks of the projection, newest first. One call reads a bounded part of the ledger. Its output
ends with the position at which to continue; in JSON that is "next".`,
		Example: "  taskledger task list --state dead\n  taskledger task list --kind coupon.send --limit 10 -o jsonl",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit == 0 { // ReadTasks would use its default
				return &ledger.InvalidError{Field: "limit", Value: "0",
					Rule: fmt.Sprintf("must be between 1 and %d", projector.MaxList)}
			}
			return listTasks(cmd.Context(), a, projector.Filter{
				Kind: ledger.Kind(kind), State: ledger.State(state), Limit: limit, After: ledger.Position(after),
			})
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only tasks of this kind")
	cmd.Flags().StringVar(&state, "state", "", "only tasks in this state")
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("maximum number of tasks, 1 to %d", projector.MaxList))
	cmd.Flags().Int64Var(&after, "after", 0, "`position` at which to continue: \"next\" of the previous call")
	return cmd
}

// listed is the result as JSON.
type listed struct {
	Tasks []projector.Task `json:"tasks"`
	Next  ledger.Position  `json:"next,omitempty"`
}

func listTasks(ctx context.Context, a *app, f projector.Filter) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	tasks, next, err := projector.ReadTasks(ctx, pool, f)
	if err != nil {
		return err
	}
	if err := printList(a, listed{tasks, next}, tasks, func(w io.Writer) {
		t := newTable([]any{"kind", "biz_id", "state", "attempt", "enqueued", "updated", "error"}, 4, 5, 6)
		for _, task := range tasks {
			t.AppendRow(table.Row{plain(string(task.Kind)), plain(string(task.BizID)), task.State, task.Attempt,
				ago(task.EnqueuedAt), ago(task.UpdatedAt), shorten(task.Error, 60)})
		}
		renderTable(w, t)
	}); err != nil {
		return err
	}
	return noteList(ctx, a, pool, len(tasks), next)
}

// noteList writes notes for people: that the list continues, or that it is late.
func noteList(ctx context.Context, a *app, pool *pgxpool.Pool, listed int, next ledger.Position) error {
	switch {
	case next != 0 && a.config.output != formatJSON:
		fmt.Fprintf(a.stderr, "there may be more: continue with --after %d\n", next)
	case next == 0 && listed == 0:
		fmt.Fprintln(a.stderr, "no such tasks")
	}
	return noteLag(ctx, a, pool)
}

// noteLag writes a note for people if the projection is late.
func noteLag(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	if a.config.output != formatTable {
		return nil
	}
	lag, err := projector.ReadLag(ctx, pool)
	if err == nil && lag.Age > time.Second {
		fmt.Fprintf(a.stderr,
			"the list is late: the oldest event that is not in it is %s old; is taskledger serve running?\n",
			age(lag.Age))
	}
	return err
}
