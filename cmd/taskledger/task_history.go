package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

// historyFlags are the options of history.
type historyFlags struct {
	asOf      when
	archive   string
	utc, data bool
	limit     int
	before    int
}

const (
	// defaultHistory is the number of events that history shows unless it streams.
	defaultHistory = 200
	// historyPage is the number of events that history reads at once when it streams.
	historyPage = 1000
)

func newHistoryCommand(a *app) *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history KIND BIZ_ID",
		Short: "Show the events of a task, oldest first",
		Long: `Show the newest events of a task, oldest first, with their actor, the login that the database recorded,
and the whole reason or error. If there are earlier events, the output ends with the version at which to continue, in
JSON "next". With -o jsonl all events are listed, one a line.

With --as-of, show the task as it was: its state, its attempt and the events that were committed by that time, or up
to the event at that position. The events of an archived task are read from the archive.`,
		Example: "  taskledger history coupon.send order-17\n" +
			"  taskledger history coupon.send order-17 --as-of 2026-11-17T09:00:00Z --utc\n" +
			"  taskledger history coupon.send/order-17 --data -o jsonl",
		Args: keyArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args)
			if err != nil {
				return err
			}
			switch isSet := cmd.Flags().Changed("limit"); {
			case isSet && f.limit < 1:
				return usagef("--limit must be at least 1, got %d", f.limit)
			case cmd.Flags().Changed("before") && f.before < 2:
				return usagef("--before must be at least 2, got %d", f.before)
			case !isSet && a.config.output == formatJSONL:
				f.limit = 0 // all
			}
			return showHistory(cmd.Context(), a, key, f)
		},
	}
	cmd.Flags().Var(&f.asOf, "as-of", "the task as it was then (default: now)")
	addArchiveFlag(cmd, &f.archive)
	cmd.Flags().IntVar(&f.limit, "limit", defaultHistory, "maximum number of events (with -o jsonl: all)")
	cmd.Flags().IntVar(&f.before, "before", 0, "only events before this `version`: \"next\" of the previous call")
	refuseZero(cmd.Flags(), "before")
	addEventFlags(cmd, &f.utc, &f.data)
	return cmd
}

// history is the result as JSON.
type history struct {
	AsOf    *ledger.Moment `json:"as_of,omitempty"` // nil: now
	State   ledger.State   `json:"state"`
	Attempt ledger.Attempt `json:"attempt"`
	Events  []ledger.Event `json:"events"`
	Next    ledger.Version `json:"next,omitempty"` // to be given as --before; 0: there are no earlier events

	// ArchivedAt is when the task was archived. Nil: it was not, or its key was enqueued again.
	ArchivedAt *time.Time `json:"archived_at,omitempty"`
}

func showHistory(ctx context.Context, a *app, key ledger.Key, f historyFlags) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	moment, wrong := f.asOf.moment(ctx, pool)
	var version ledger.Version
	err = wrong
	if err == nil {
		version, err = ledger.VersionAsOf(ctx, pool, key, moment)
	}
	old, archivedErr := a.readArchived(ctx, pool, key, f.asOf, f.archive)
	switch {
	case err != nil && archivedErr != nil:
		return unknownTask(archivedErr, key)
	case wrong != nil && old == nil:
		return wrong
	case err != nil && old == nil:
		return unknownTaskAsOf(ctx, pool, err, key, moment)
	case archivedErr != nil:
		fmt.Fprintf(a.stderr, "earlier events are not shown: %s\n", plain(archivedErr.Error()))
	case old != nil:
		return old.showHistory(ctx, a, pool, version, f)
	}
	end := version + 1
	if f.before > 0 {
		end = min(end, ledger.Version(f.before))
	}
	if f.limit == 0 {
		return streamHistory(ctx, a, pool, key, end)
	}
	// The head decides the state, even if the events before it do not fold.
	head, err := ledger.NewestOf(ctx, pool, key, ledger.NewestOptions{Before: version + 1, Limit: 1})
	if err != nil {
		return err
	}
	events, err := ledger.NewestOf(ctx, pool, key, ledger.NewestOptions{Before: end, Limit: f.limit + 1})
	if err != nil {
		return err
	}
	h := history{State: head[0].Type.State(), Attempt: head[0].Attempt, Events: events}
	if !moment.IsZero() {
		h.AsOf = &moment
	}
	return h.print(a, key, f)
}

// print shows a history whose events are one more than the limit if there are earlier ones.
func (h history) print(a *app, key ledger.Key, f historyFlags) error {
	var earlier *ledger.Event // the last event that is not shown
	if events := h.Events; len(events) > f.limit {
		earlier, h.Events, h.Next = &events[0], events[1:], events[1].Version
	}
	err := printList(a, h, h.Events, func(w io.Writer) {
		asOf := ""
		if f.asOf.isSet() {
			asOf = " as of " + f.asOf.text
		}
		if h.ArchivedAt != nil {
			asOf += ", archived " + ago(*h.ArchivedAt)
		}
		fmt.Fprintf(w, "%s%s: %s, attempt %d\n", bold.on(plain(key.String())), asOf, painted(h.State), h.Attempt)
		renderHistory(w, earlier, h.Events, f)
	})
	if h.Next != 0 && a.config.output != formatJSON {
		fmt.Fprintf(a.stderr, "there are earlier events: continue with --before %d\n", h.Next)
	}
	return err
}

// streamHistory writes all events of a task before a version, one a line.
func streamHistory(ctx context.Context, a *app, db ledger.DB, key ledger.Key, end ledger.Version) error {
	for next := ledger.Version(1); next < end; {
		until := min(next+historyPage, end)
		o := ledger.NewestOptions{Before: until, Limit: int(until - next)}
		events, err := ledger.NewestOf(ctx, db, key, o)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Version < next { // a forged history has gaps
				continue
			}
			if err := a.printJSON(e, ""); err != nil {
				return err
			}
		}
		next = until
	}
	return nil
}

// renderHistory shows events as a table. earlier is the event before them, or nil.
func renderHistory(w io.Writer, earlier *ledger.Event, events []ledger.Event, f historyFlags) {
	header := []any{"version", "position", "event", "attempt", "time", "after", "actor", "login", "worker", "detail"}
	run := 0 // the last one whose beginning is known
	if f.data {
		header = append(header, "data", "meta")
	}
	t := newTable(header, 1, 2, 4, 6)
	for _, e := range events {
		after, detail := "", detailOf(e)
		if earlier != nil {
			after = age(happenedAt(e).Sub(happenedAt(*earlier)))
		}
		if at := happenedAt(e); !at.Equal(e.RecordedAt) {
			detail = "began at " + clock(at, f.utc)
		}
		if e.HasArgs() {
			detail = argsDetail(e, run, f.utc)
			run = max(1, e.Run)
		} else if due := e.DueAt(); e.Type == ledger.EventScheduled && !due.IsZero() {
			detail = strings.TrimPrefix(detail+", due "+clock(due, f.utc), ", ")
		}
		earlier = &e
		worker := workerOf(e)
		if worker == e.Actor {
			worker = ""
		}
		row := table.Row{e.Version, e.Position, painted(e.Type), e.Attempt, clock(e.RecordedAt, f.utc), after,
			plain(e.Actor), plain(e.Login), plain(worker), plain(detail)}
		if f.data {
			row = append(row, plain(string(e.Data)), plain(string(e.Meta)))
		}
		t.AppendRow(row)
	}
	t.SuppressEmptyColumns()
	if s, isScreen := w.(*screen); isScreen {
		s.isWhole = true
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
	if !e.HasArgs() {
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

// argsDetail returns what an event with args does, after the begin of a run, and when the task is due.
func argsDetail(e ledger.Event, run int, utc bool) string {
	var parts []string
	switch {
	case e.Run == 0: // the first event
	case e.Run == run:
		parts = append(parts, "args replaced")
	default:
		parts = append(parts, fmt.Sprintf("run %d", e.Run))
	}
	if due := e.DueAt(); !due.IsZero() {
		parts = append(parts, "due "+clock(due, utc))
	}
	return strings.Join(parts, ", ")
}

// workerOf returns the worker of an attempt that an event records, or "".
func workerOf(e ledger.Event) string {
	worker := ""
	if !e.HasArgs() { // the args of the task are the user's
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
	first, now := ledger.ArgsEvent(ctx, db, key)
	if now != nil {
		return unknownTask(now, key)
	}
	return failf(exitNotFound, "task %s did not exist as of %s", key, moment).
		hinted("its first event is at position %d, recorded at %s", first.Position,
			clock(first.RecordedAt, true))
}
