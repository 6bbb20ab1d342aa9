package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// listedProjection is a projection with its lag, as JSON.
type listedProjection struct {
	projector.Registered

	Waiting         int   `json:"waiting"` // events that are not applied yet; at most projector.MaxLag
	OldestWaitingMS int64 `json:"oldest_waiting_ms"`
}

func listProjections(ctx context.Context, a *app, pool *pgxpool.Pool, _ showFlags) error {
	registered, err := projector.ReadProjections(ctx, pool)
	if err != nil {
		return err
	}
	all := make([]listedProjection, len(registered))
	for i, r := range registered {
		lag, err := projector.ReadLagOf(ctx, pool, r.Name)
		if err != nil {
			return err
		}
		all[i] = listedProjection{r, lag.Events, lag.Age.Milliseconds()}
	}
	list := struct {
		Projections []listedProjection `json:"projections"`
	}{all}
	return printList(a, list, all, func(w io.Writer) {
		t := newTable([]any{"projection", "version", "to apply", "parked", "skipped", "state"}, 2, 3, 4, 5)
		for _, p := range all {
			t.AppendRow(table.Row{
				plain(p.Name), p.Version, printable.Counted(int64(p.Waiting)), printable.Counted(int64(p.Parked)),
				printable.Counted(int64(p.Skipped)), projectionState(p.Registered),
			})
		}
		renderTable(w, t)
	})
}

// projectionState returns the state of a projection in one line.
func projectionState(r projector.Registered) string {
	switch f, w := r.Failing, r.Work; {
	case f != nil:
		return shorten(fmt.Sprintf("stopped at position %d, %s version %d, failed %s times since %s: %s",
			f.Position, f.Key, f.Version, count(int64(f.Failures)), ago(f.Since), f.Error), maxState)
	case w != nil && w.Result == nil:
		return fmt.Sprintf("%s: %s of %s events", w.Name, count(w.Done), count(w.Total))
	case r.Wanted != "":
		return r.Wanted + " asked for"
	}
	return "in use since " + ago(r.Since)
}

// maxState is the length of the state of a projection in a list.
const maxState = 160

func newRebuildProjectionCommand(a *app) *cobra.Command {
	var act projector.Act
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "projection NAME",
		Short: "Rebuild the tables of a projection from all events, then replace the tables in use",
		Long: `Rebuild the tables of a projection from all events, and replace the tables in use when the new ones have
caught up. Readers read the old tables until then, and wait for less than a second while they are replaced.
If the command is interrupted or killed, run it again: it continues.

The built-in projection is ` + projector.TasksName + `: this command rebuilds it, as the owner of the schema taskledger.
Other projections are rebuilt by the programs that run them, even if this command ends early.`,
		Example: "  taskledger rebuild projection tasks --reason 'table changed by hand'\n" +
			"  taskledger rebuild projection coupons",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				act.Actor = actorOr(act.Actor)
				if dryRun {
					return planRebuild(ctx, a, pool, args[0])
				}
				return rebuildProjection(ctx, a, pool, args[0], act)
			})
		},
	}
	addActFlags(cmd, &act)
	addDryRunFlag(cmd, &dryRun)
	return cmd
}

// planRebuild shows the tables that a rebuild would replace.
func planRebuild(ctx context.Context, a *app, pool *pgxpool.Pool, name string) error {
	r, err := projector.ReadProjection(ctx, pool, name)
	if err != nil {
		return err
	}
	answer := struct {
		Projection string `json:"projection"`
		Version    int    `json:"version"`
		DryRun     bool   `json:"dry_run"`
	}{name, int(r.Version), true}
	return a.print(answer, func(w io.Writer) {
		fmt.Fprintf(w, "the tables of %s, version %d, would be rebuilt from all events, next to the tables in use\n",
			plain(name), r.Version)
	})
}

// addActFlags adds the author and the reason of a change.
func addActFlags(cmd *cobra.Command, act *projector.Act) {
	addActorFlag(cmd, &act.Actor)
	addReasonFlag(cmd, &act.Reason)
}

func rebuildProjection(ctx context.Context, a *app, pool *pgxpool.Pool, name string, act projector.Act) error {
	began := time.Now()
	events, err := withProgress(a, "rebuilt", func(show func(done, total int64)) error {
		if name == projector.TasksName {
			return projector.RebuildTasksAs(ctx, pool, act, &projector.RebuildOptions{Progress: show, Logger: a.log})
		}
		work, err := askAndWait(ctx, a, pool, name, projector.WorkRebuild, act, show)
		if err == nil {
			show(work.Done, work.Total)
		}
		return err
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	answer := struct {
		Projection string `json:"projection"`
		Events     int64  `json:"events"`
		TookMS     int64  `json:"took_ms"`
	}{name, events, took.Milliseconds()}
	return a.print(answer, func(w io.Writer) {
		fmt.Fprintf(w, "rebuilt: %s from %s events in %s\n", plain(name), count(events), age(took))
	})
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

// askAndWait asks the program that runs a projection for work, and waits for its result.
func askAndWait(
	ctx context.Context, a *app, pool *pgxpool.Pool, name, work string, act projector.Act, show func(done, total int64),
) (projector.Work, error) {
	if err := projector.Ask(ctx, pool, name, work, act); err != nil {
		return projector.Work{}, err
	}
	asked, isNoted := time.Now(), false
	for ticker := time.NewTicker(askEvery); ; {
		r, err := projector.ReadProjection(ctx, pool, name)
		if err != nil {
			return projector.Work{}, err
		}
		isOurs := r.Work != nil && r.Work.Name == work
		switch {
		case r.Wanted != work && isOurs && r.Work.Result != nil:
			return *r.Work, workFailure(name, *r.Work)
		case isOurs && r.Work.Result == nil:
			show(r.Work.Done, r.Work.Total)
		case !isNoted && time.Since(asked) > notedAfter:
			isNoted = true
			fmt.Fprintf(a.stderr, "waiting for a program that runs projection %s\n", plain(name))
		}
		select {
		case <-ctx.Done():
			return projector.Work{}, stoppedWaiting(r, work)
		case <-ticker.C:
		}
	}
}

// stoppedWaiting returns the error of a command that ends before the work that it requested.
func stoppedWaiting(r projector.Registered, work string) error {
	state := "no program has begun it"
	if w := r.Work; w != nil && w.Name == work && w.Result == nil {
		state = fmt.Sprintf("%s of %s events are done", count(w.Done), count(w.Total))
	}
	return failf(exitFailed, "interrupted: the %s of projection %s is still asked for: %s", work, plain(r.Name), state).
		hinted("see: taskledger show projections")
}

const (
	askEvery   = 200 * time.Millisecond
	notedAfter = 5 * time.Second
)

// workFailure returns the error of work that has failed.
func workFailure(name string, w projector.Work) error {
	if text := w.Failure(); text != "" {
		first, _, _ := strings.Cut(text, "\n")
		return failf(exitFailed, "%s of projection %s: %s", w.Name, name, first).
			hinted("see: taskledger show projections; correct the cause, and run it again")
	}
	return nil
}

func newVerifyProjectionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "projection NAME",
		Short: "Compare the tables of a projection with the events",
		Long: `Compare the tables of a projection with the events, without stopping anything. The exit code is 7 if they
differ; the output contains the rows. To correct them: taskledger rebuild projection NAME.

The built-in projection is ` + projector.TasksName + `. Other projections are verified by the programs that run them:
each builds the tables again from the events in the tables in use, and compares both.`,
		Example: "  taskledger verify projection tasks\n  taskledger verify projection coupons -o json",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return verifyProjection(ctx, a, pool, args[0])
			})
		},
	}
}

func verifyProjection(ctx context.Context, a *app, pool *pgxpool.Pool, name string) error {
	report, err := readReport(ctx, a, pool, name)
	if err != nil {
		return err
	}
	answer := struct {
		Projection string `json:"projection"`
		Equal      bool   `json:"equal"`
		projector.Report
	}{name, report.Equal(), report}
	if answer.Differences == nil {
		answer.Differences = []projector.Difference{}
	}
	if err := a.print(answer, func(w io.Writer) { renderReport(w, name, report) }); err != nil || report.Equal() {
		return err
	}
	return failf(exitIntegrity, "projection %s: %s differences", name, count(report.Different)).
		hinted("taskledger rebuild projection %s", name)
}

func readReport(ctx context.Context, a *app, pool *pgxpool.Pool, name string) (report projector.Report, err error) {
	if name == projector.TasksName {
		_, err = withProgress(a, "verified", func(show func(done, total int64)) error {
			report, err = projector.Verify(ctx, pool, show)
			return err
		})
		return report, err
	}
	_, err = withProgress(a, "verified", func(show func(done, total int64)) error {
		work, err := askAndWait(ctx, a, pool, name, projector.WorkVerify, projector.Act{}, show)
		if err != nil {
			return err
		}
		report, err = projector.ReadReport(work)
		return err
	})
	return report, err
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

func listProjectionParked(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	after, err := parseEventPlace(f.after)
	if err != nil {
		return err
	}
	all, next, err := cutPage(f.limit, func(limit int) ([]projector.ParkedEvent, error) {
		return projector.ReadProjectionParked(ctx, pool, f.projection, after, limit)
	}, func(p projector.ParkedEvent) string { return eventPlace(p.Key, p.Version) })
	if err != nil {
		return err
	}
	list := struct {
		Parked []projector.ParkedEvent `json:"parked"`
		Next   string                  `json:"next,omitempty"`
	}{all, next}
	if len(all) == 0 {
		fmt.Fprintln(a.stderr, "no parked events")
	}
	noteNext(a, next)
	return printList(a, list, all, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		t := newTable([]any{"position", "task", "version", "state", "failures", "parked", "error"}, 1, 3, 5)
		for _, p := range all {
			text, _, _ := strings.Cut(p.Error, "\n")
			if text == "" {
				text = "(an earlier event of the task is parked)"
			}
			t.AppendRow(table.Row{
				p.Position, plain(p.Key.String()), p.Version, p.State, p.Failures, ago(p.ParkedAt),
				shorten(text, 100),
			})
		}
		renderTable(w, t)
	})
}

// awaitRetry waits until the program that runs a projection has retried the parked events of a task, and returns their
// new state. It returns an error if one of them has failed again.
func awaitRetry(ctx context.Context, db ledger.DB, name string, k ledger.Key, wait time.Duration) (string, error) {
	for deadline := time.Now().Add(wait); ; {
		left, err := projector.ReadParkedTask(ctx, db, name, k)
		left = slices.DeleteFunc(left, func(p projector.ParkedEvent) bool { return p.State == "skipped" })
		failed := slices.IndexFunc(left, func(p projector.ParkedEvent) bool { return p.Error != "" })
		switch {
		case err != nil:
			return "", err
		case len(left) == 0:
			return "applied", nil
		case left[0].State == "parked" && failed >= 0:
			text, _, _ := strings.Cut(left[failed].Error, "\n")
			return "", failf(exitFailed, "the event at position %d has failed again (failures: %d): %s",
				left[failed].Position, left[failed].Failures, text).
				hinted("correct the program that runs the projection; or: "+
					"taskledger discard parked --projection %s %s %s", name, k.Kind, k.BizID)
		case time.Now().After(deadline):
			return "to be retried when a program that runs projection " + name + " finds them", nil
		}
		if err := loop.Sleep(ctx, askEvery); err != nil {
			return "", err
		}
	}
}

// countUnapplied returns the number of events of a task that a projection has parked, or at which it has stopped.
func countUnapplied(ctx context.Context, db projector.DB, name string, key ledger.Key, _ projector.Act) (int, error) {
	r, err := projector.ReadProjection(ctx, db, name)
	if err != nil {
		return 0, err
	}
	parked, err := projector.ReadParkedTask(ctx, db, name, key)
	if err != nil {
		return 0, err
	}
	n := len(parked)
	if n == 0 && r.Failing != nil && r.Failing.Key == key {
		n = 1
	}
	if n == 0 {
		return 0, fmt.Errorf("projection %s, task %s: %w", name, key, projector.ErrNotParked)
	}
	return n, nil
}
