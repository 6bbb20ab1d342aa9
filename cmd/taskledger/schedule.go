package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger/periodic"
)

// withDatabase calls f with a connection pool of the database.
func (a *app) withDatabase(ctx context.Context, f func(context.Context, *pgxpool.Pool) error) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(ctx, pool)
}

func listSchedules(ctx context.Context, a *app, pool *pgxpool.Pool, f showFlags) error {
	schedules, next, err := readPage(ctx, pool, f.pageFlags, periodic.ReadSchedules,
		func(s periodic.Status) string { return s.Schedule.Name })
	if err != nil {
		return err
	}
	value := struct {
		Schedules []periodic.Status `json:"schedules"`
		Next      string            `json:"next,omitempty"`
	}{schedules, next}
	if err := printList(a, value, schedules, func(w io.Writer) {
		t := newTable([]any{"name", "kind", "when", "next", "last", "passed over", "paused"}, 4, 5, 6)
		for _, s := range schedules {
			next, paused := nextFiring(s), ""
			if s.Paused {
				next, paused = "paused", pausedSchedule(s)
			}
			t.AppendRow(table.Row{
				s.Schedule.Name, s.Schedule.Kind, plain(s.Schedule.When()), next, lastFiring(s),
				count(s.Passed), paused,
			})
		}
		t.SuppressEmptyColumns()
		renderTable(w, t)
	}); err != nil {
		return err
	}
	if len(schedules) == 0 {
		fmt.Fprintln(a.stderr, "no schedules")
	}
	noteNext(a, next)
	return nil
}

func nextFiring(s periodic.Status) string {
	switch {
	case s.Paused:
		return "paused " + pausedSchedule(s)
	case !s.NextAt.IsZero() && time.Until(s.NextAt) > 0:
		return "in " + age(time.Until(s.NextAt))
	case !s.NextAt.IsZero():
		return "due " + ago(s.NextAt)
	case s.Schedule.FixedDelay != 0:
		return "when the last task finishes"
	}
	return "never"
}

// pausedSchedule returns since when a schedule is paused, by whom and why.
func pausedSchedule(s periodic.Status) string {
	text := ago(s.PausedAt) + " by " + plain(s.PausedBy)
	if s.PauseReason != "" {
		text += ": " + plain(s.PauseReason)
	}
	return text
}

func lastFiring(s periodic.Status) string {
	if s.LastAt.IsZero() {
		return "never"
	}
	return ago(s.LastAt)
}

// printSchedule shows a schedule.
func printSchedule(a *app, s periodic.Status) error {
	return a.print(s, func(w io.Writer) { renderSchedule(w, s) })
}

func renderSchedule(w io.Writer, s periodic.Status) {
	d := s.Schedule
	fields := [][2]string{{"schedule", d.Name}, {"kind", string(d.Kind)}, {"when", plain(d.When())}}
	if !d.Anchor.IsZero() {
		fields = append(fields, [2]string{"anchor", d.Anchor.Format(time.RFC3339)})
	}
	if len(d.Args) > 0 {
		fields = append(fields, [2]string{"args", plain(string(d.Args))})
	}
	if d.FixedDelay == 0 {
		missed := string(d.Missed)
		if d.Missed == periodic.MissedAll {
			missed += fmt.Sprintf(", %d at a time", d.MissedLimit)
		}
		fields = append(fields, [2]string{"missed firings", missed}, [2]string{"overlap", string(d.Overlap)})
	}
	next := nextFiring(s)
	if !s.NextAt.IsZero() && !s.Paused {
		next += " (" + s.NextAt.Format(time.RFC3339) + ")"
	}
	fields = append(fields, [2]string{"next", next}, [2]string{"last", lastFiring(s)})
	if s.LastTask != nil {
		fields = append(fields, [2]string{"last task", plain(s.LastTask.String())})
	}
	passed := count(s.Passed)
	if !s.PassedAt.IsZero() {
		passed += ", the last " + ago(s.PassedAt)
	}
	fields = append(fields, [2]string{"passed over", passed}, [2]string{"revision", strconv.Itoa(s.Revision)},
		[2]string{"changed", ago(s.UpdatedAt) + " by " + plain(s.Actor)})
	renderFields(w, fields...)
}

// unknownSchedule returns an error that names the unknown schedule.
func unknownSchedule(err error, name string) error {
	if f := describe(err); f.exit != exitNotFound {
		return err
	}
	return failf(exitNotFound, "there is no schedule %s", name).hinted("list schedules with: taskledger show schedules")
}

func newRunScheduleCommand(a *app) *cobra.Command {
	var actor, reason string
	cmd := &cobra.Command{
		Use:   "schedule NAME",
		Short: "Enqueue a task of a schedule now",
		Long: "Enqueue a task of a schedule now, even if the schedule is paused. " +
			"The next firing of the schedule does not change.",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, db *pgxpool.Pool) error {
				answer, err := periodic.RunNow(ctx, db, args[0], actorOr(actor), reason)
				if err != nil {
					return unknownSchedule(err, args[0])
				}
				return a.print(answer, func(w io.Writer) {
					fmt.Fprintf(w, "enqueued %s\n", plain(answer.Key.String()))
				})
			})
		},
	}
	addActorFlag(cmd, &actor)
	addReasonFlag(cmd, &reason)
	return cmd
}
