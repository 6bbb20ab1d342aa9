package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/projector"
)

func newRebuildTablesCommand(a *app) *cobra.Command {
	var act projector.Act
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "tables [SUBSCRIBER]",
		Short: "Rebuild the lists of tasks, or a subscriber's tables, from all events",
		Long: `Rebuild tables from all events, and replace the tables in use when the new ones have caught up.
Until then, readers read the old tables. They wait for less than a second while these are replaced.

Without an argument: the built-in tables, such as the list of tasks, as the owner of the schema taskledger. If the
command is interrupted or killed, run it again: it continues.
With a subscriber: its tables. The subscriber's program rebuilds them, even if this command ends early.`,
		Example: `  taskledger rebuild tables --reason 'table changed by hand'
  taskledger rebuild tables coupons --reason 'table changed by hand'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				act.Actor = actorOr(act.Actor)
				if len(args) == 1 {
					a.command = rebuildOfSubscriber
					return rebuildSubscriber(ctx, a, pool, args[0], act, dryRun)
				}
				return rebuildBuiltIn(ctx, a, pool, act, dryRun)
			})
		},
	}
	addActFlags(cmd, &act.Actor, &act.Reason)
	addDryRunFlag(cmd, &dryRun)
	return cmd
}

func rebuildBuiltIn(ctx context.Context, a *app, pool *pgxpool.Pool, act projector.Act, dryRun bool) error {
	if dryRun {
		return planRebuild(a, "projection", projector.TasksName, 1)
	}
	began := time.Now()
	events, err := withProgress(a, "rebuilt", func(show func(done, total int64)) error {
		o := &projector.RebuildOptions{Progress: show, Logger: a.log}
		return projector.RebuildTasksAs(ctx, pool, act, o)
	})
	if err != nil {
		return err
	}
	return printRebuilt(a, "projection", projector.TasksName, events, time.Since(began))
}

func newVerifyTablesCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "tables [SUBSCRIBER]",
		Short: "Compare the lists of tasks, or a subscriber's tables, with the events",
		Long: `Compare tables with the events, without stopping anything. The exit code is 7 if they differ; the output
contains the rows. To correct them: taskledger rebuild tables.

Without an argument: the built-in tables, such as the list of tasks.
With a subscriber: its tables. The subscriber's program builds them again from the events in the tables in use, and
compares both.`,
		Example: "  taskledger verify tables\n  taskledger verify tables coupons -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if len(args) == 1 {
					return verifySubscriber(ctx, a, pool, args[0])
				}
				return verifyBuiltIn(ctx, a, pool)
			})
		},
	}
}

func verifyBuiltIn(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	var report projector.Report
	_, err := withProgress(a, "verified", func(show func(done, total int64)) (err error) {
		report, err = projector.Verify(ctx, pool, show)
		return err
	})
	if err != nil {
		return err
	}
	return printReport(a, "projection", projector.TasksName, report)
}

// planRebuild shows the tables that a rebuild would replace, of the projection or of a subscriber (what).
func planRebuild(a *app, what, name string, version int) error {
	answer := map[string]any{what: name, "version": version, "dry_run": true}
	return a.print(answer, func(w io.Writer) {
		fmt.Fprintf(w, "the tables of %s, version %d, would be rebuilt from all events, next to the tables in use\n",
			plain(name), version)
	})
}

// printRebuilt shows that tables were rebuilt.
func printRebuilt(a *app, what, name string, events int64, took time.Duration) error {
	answer := map[string]any{what: name, "events": events, "took_ms": took.Milliseconds()}
	return a.print(answer, func(w io.Writer) {
		fmt.Fprintf(w, "rebuilt: %s from %s events in %s\n", plain(name), count(events), age(took))
	})
}

// printReport shows the outcome of a verification, and returns an error if there are differences.
func printReport(a *app, what, name string, r projector.Report) error {
	answer := struct {
		Projection string `json:"projection,omitempty"`
		Subscriber string `json:"subscriber,omitempty"`
		Equal      bool   `json:"equal"`
		projector.Report
	}{Equal: r.Equal(), Report: r}
	if answer.Projection = name; what == "subscriber" {
		answer.Projection, answer.Subscriber = "", name
	}
	if answer.Differences == nil {
		answer.Differences = []projector.Difference{}
	}
	if err := a.print(answer, func(w io.Writer) { renderReport(w, name, r) }); err != nil || r.Equal() {
		return err
	}
	failed := failf(exitIntegrity, "%s %s: %s differences", what, name, count(r.Different))
	if what == "subscriber" {
		return failed.hinted("taskledger rebuild tables %s", shellWord(name))
	}
	return failed.hinted("taskledger rebuild tables")
}

func renderReport(w io.Writer, name string, r projector.Report) {
	for _, d := range r.Differences {
		fmt.Fprintln(w, plain(d.String()))
	}
	if more := r.Different - int64(len(r.Differences)); more > 0 {
		fmt.Fprintf(w, "and %s more\n", count(more))
	}
	if r.Equal() {
		fmt.Fprintf(w, "equal: %s, %s events\n", plain(name), count(r.Events))
	}
}

// addActFlags adds the author and the reason of a change.
func addActFlags(cmd *cobra.Command, actor, reason *string) {
	addActorFlag(cmd, actor)
	addReasonFlag(cmd, reason)
}

// withProgress calls f with a function that shows the progress of events, with their rate and the time left. It returns
// the number of events at the end.
func withProgress(a *app, done string, f func(show func(done, total int64)) error) (events int64, err error) {
	var show func(int64)
	stop := func() {}
	err = f(func(n, total int64) {
		if show == nil {
			show, stop = a.progress(done, total)
		}
		events = n
		show(n)
	})
	stop()
	return events, err
}
