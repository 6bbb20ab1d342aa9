package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// taskPage is the result as JSON.
type taskPage struct {
	Tasks []ledger.ListedTask `json:"tasks"`
	Next  ledger.Position     `json:"next,omitempty"`
}

func listTasks(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	after, err := f.position()
	if err != nil {
		return err
	}
	tasks, next, err := projector.ReadTasks(ctx, pool, f.filter(after))
	if err != nil {
		return err
	}
	if err := printList(a, taskPage{tasks, next}, tasks, func(w io.Writer) {
		header, numbers := []any{"kind", "biz_id", "state", "priority", "partition"}, []int{6, 7, 8}
		hasLines := slices.ContainsFunc(tasks, func(t ledger.ListedTask) bool { return t.OrderKey != "" })
		if hasLines {
			header, numbers = append(header, "order key"), []int{7, 8, 9}
		}
		t := newTable(append(header, "attempt", "enqueued", "updated", "error"), numbers...)
		for _, task := range tasks {
			priority := "" // normal
			if task.Priority != ledger.PriorityNormal {
				priority = task.Priority.String()
			}
			row := table.Row{plain(string(task.Kind)), plain(string(task.BizID)), painted(task.State), priority,
				plain(task.Partition)}
			if hasLines {
				row = append(row, plain(task.OrderKey))
			}
			t.AppendRow(append(row, task.Attempt, f.time(task.EnqueuedAt), f.time(task.UpdatedAt),
				shorten(task.Error, 60)))
		}
		t.SuppressEmptyColumns()
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if err := noteList(ctx, a, pool, len(tasks), next); err != nil || next != 0 ||
		f.state != "" && !ledger.State(f.state).Finished() {
		return err
	}
	l := leftOut{isEmpty: len(tasks) == 0, by: "taskledger show task"}
	if f.kind != "" {
		l.kinds = []ledger.Kind{ledger.Kind(f.kind)}
		if f.prefix != "" {
			l.key = f.kind + "/" + f.prefix
		}
	}
	return l.note(ctx, a, pool)
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
	lag, err := projection.ReadLag(ctx, pool)
	if err == nil && lag.Age > time.Second {
		fmt.Fprintf(a.stderr,
			"the list is late: the oldest event that is not in it is %s old; is taskledger serve running?\n",
			age(lag.Age))
	}
	return err
}
