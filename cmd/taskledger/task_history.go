package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

// historyFlags are the options of task history.
type historyFlags struct {
	asOf      when
	utc, data bool
}

func newTaskHistoryCommand(a *app) *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history KIND BIZ_ID",
		Short: "Show all events of a task, oldest first",
		Long: `Show all events of a task, oldest first, with their actor, the login that the database recorded, and the
whole reason or error. With --as-of, show the task as it was: its state, its attempt and the events that were
committed by that time, or up to the event at that position.`,
		Example: "  taskledger task history coupon.send order-17\n" +
			"  taskledger task history coupon.send order-17 --as-of 2026-11-17T09:00:00Z --utc\n" +
			"  taskledger task history coupon.send/order-17 --data -o jsonl",
		Args: keyArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args)
			if err != nil {
				return err
			}
			return showHistory(cmd.Context(), a, key, f)
		},
	}
	cmd.Flags().Var(&f.asOf, "as-of", "the task as it was then (default: now)")
	addUTCFlag(cmd, &f.utc)
	cmd.Flags().BoolVar(&f.data, "data", false, "show args, results and all other data of the events too")
	return cmd
}

// history is the result as JSON.
type history struct {
	AsOf    *ledger.Moment `json:"as_of,omitempty"` // nil: now
	State   ledger.State   `json:"state"`
	Attempt ledger.Attempt `json:"attempt"`
	Events  []ledger.Event `json:"events"`
}

func showHistory(ctx context.Context, a *app, key ledger.Key, f historyFlags) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	moment, err := f.asOf.moment(ctx, pool)
	if err != nil {
		return err
	}
	events, err := ledger.HistoryAsOf(ctx, pool, key, moment)
	if err != nil {
		return unknownTaskAsOf(ctx, pool, err, key, moment)
	}
	last := events[len(events)-1] // the head decides, also if the events before it do not fold
	h := history{State: last.Type.State(), Attempt: last.Attempt, Events: events}
	if !moment.IsZero() {
		h.AsOf = &moment
	}
	return printList(a, h, events, func(w io.Writer) {
		asOf := ""
		if h.AsOf != nil {
			asOf = " as of " + f.asOf.text
		}
		fmt.Fprintf(w, "%s%s: %s, attempt %d\n", plain(key.String()), asOf, h.State, h.Attempt)
		renderHistory(w, events, f)
	})
}

func renderHistory(w io.Writer, events []ledger.Event, f historyFlags) {
	header := []any{"version", "position", "event", "attempt", "time", "after", "actor", "login", "worker", "detail"}
	if f.data {
		header = append(header, "data", "meta")
	}
	t := newTable(header, 1, 2, 4, 6)
	for i, e := range events {
		after, detail := "", detailOf(e)
		if i > 0 {
			after = age(happenedAt(e).Sub(happenedAt(events[i-1])))
		}
		if at := happenedAt(e); !at.Equal(e.RecordedAt) {
			detail = "began at " + clock(at, f.utc)
		}
		row := table.Row{e.Version, e.Position, e.Type, e.Attempt, clock(e.RecordedAt, f.utc), after, plain(e.Actor),
			plain(e.Login), plain(workerOf(e)), plain(detail)}
		if f.data {
			row = append(row, plain(string(e.Data)), plain(string(e.Meta)))
		}
		t.AppendRow(row)
	}
	renderTable(w, t)
}

// happenedAt returns when an event happened: the start of an attempt is recorded some time after it.
func happenedAt(e ledger.Event) time.Time {
	if began, ok := e.BeganAt(); ok && e.Type == ledger.EventStarted {
		return began
	}
	return e.RecordedAt
}

// detailOf returns the error, reason or progress that an event records. The args of the task are the user's.
func detailOf(e ledger.Event) string {
	text, reason := e.ErrorText(), ""
	if e.Version > 1 {
		reason = strictjson.Text(e.Data, "reason")
	}
	switch {
	case e.Type == ledger.EventProgressed:
		return string(strictjson.Member(e.Data, "progress"))
	case reason != "" && reason != text:
		return reason + ": " + text
	}
	return text
}

// workerOf returns the worker of an attempt that an event records, or "".
func workerOf(e ledger.Event) string {
	worker := ""
	if e.Version > 1 { // the args of the task are the user's
		worker = strictjson.Text(e.Data, "worker")
	}
	if worker == "" && (e.Type == ledger.EventStarted || e.Type == ledger.EventProgressed) {
		return e.Actor
	}
	return worker
}

// unknownTaskAsOf is [unknownTask] for a task that may have been enqueued after a moment.
func unknownTaskAsOf(ctx context.Context, db ledger.DB, err error, key ledger.Key, moment ledger.Moment) error {
	if moment.IsZero() || describe(err).exit != exitNotFound {
		return unknownTask(err, key)
	}
	events, now := ledger.History(ctx, db, key)
	if now != nil {
		return unknownTask(now, key)
	}
	return failf(exitNotFound, "task %s did not exist as of %s", key, moment).
		hinted("its first event is at position %d, recorded at %s", events[0].Position,
			clock(events[0].RecordedAt, true))
}
