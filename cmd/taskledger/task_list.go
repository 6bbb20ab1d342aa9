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
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Long: `List tasks of the projection, newest first. One call reads a bounded part of the ledger. Its output
ends with the position at which to continue; in JSON that is "next". Tasks of taskledger itself (schedules,
alarms, acts on record) are listed with --all, or with their --kind.`,
		Example: "  taskledger task list --state dead --error refused\n" +
			"  taskledger task list --kind coupon.send --biz-id order- --limit 10 -o jsonl\n" +
			"  taskledger task list --since 2026-11-17T09:00:00Z --utc --watch",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listTasks(cmd.Context(), a, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "kind", "", "only tasks of this kind")
	flags.StringVar(&f.state, "state", "", "only tasks in this state")
	flags.StringVar(&f.prefix, "biz-id", "", "only tasks whose biz_id begins with this `prefix`")
	flags.StringVar(&f.actor, "actor", "", "only tasks that this actor enqueued")
	flags.StringVar(&f.tag, "tag", "", "only tasks that were enqueued with this tag")
	flags.StringVar(&f.err, "error", "", "only tasks whose error contains this `text`")
	flags.Var(&f.since, "since", "only tasks enqueued at this time or later: a time, or an age such as 2h")
	flags.Var(&f.until, "until", "only tasks enqueued before this time")
	flags.BoolVar(&f.all, "all", false, "include tasks of taskledger itself")
	flags.IntVar(&f.limit, "limit", 50, fmt.Sprintf("maximum number of tasks, 1 to %d", projector.MaxList))
	flags.Int64Var(&f.after, "after", 0, "`position` at which to continue: \"next\" of the previous call")
	flags.BoolVar(&f.utc, "utc", false, "show times in UTC (default: ages)")
	flags.BoolVar(&f.local, "local", false, "show local times (default: ages)")
	refuseZero(flags, "kind", "state", "actor", "tag", "error", "limit")
	return a.watchable(cmd)
}

// listFlags are the options of task list.
type listFlags struct {
	kind, state, prefix, actor, tag, err string

	since, until pointInTime
	all          bool
	limit        int
	after        int64
	utc, local   bool
}

func (f listFlags) filter() projector.Filter {
	now := time.Now()
	return projector.Filter{
		Kind: ledger.Kind(f.kind), State: ledger.State(f.state), Limit: f.limit, After: ledger.Position(f.after),
		Prefix: f.prefix, Actor: f.actor, Tag: f.tag, Error: f.err, From: f.since.at(now), To: f.until.at(now),
		IsWithoutOwn: !f.all && f.kind == "",
	}
}

// time formats a time of a task: its age, or a time with its zone.
func (f listFlags) time(t time.Time) string {
	if f.utc || f.local {
		return clock(t, f.utc)
	}
	return ago(t)
}

// listed is the result as JSON.
type listed struct {
	Tasks []projector.Task `json:"tasks"`
	Next  ledger.Position  `json:"next,omitempty"`
}

func listTasks(ctx context.Context, a *app, f listFlags) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	tasks, next, err := projector.ReadTasks(ctx, pool, f.filter())
	if err != nil {
		return err
	}
	if err := printList(a, listed{tasks, next}, tasks, func(w io.Writer) {
		t := newTable([]any{"kind", "biz_id", "state", "attempt", "enqueued", "updated", "error"}, 4, 5, 6)
		for _, task := range tasks {
			t.AppendRow(table.Row{plain(string(task.Kind)), plain(string(task.BizID)), task.State, task.Attempt,
				f.time(task.EnqueuedAt), f.time(task.UpdatedAt), shorten(task.Error, 60)})
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
