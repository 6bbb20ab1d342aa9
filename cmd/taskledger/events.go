package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/ledger"
)

// eventFilter are the options that select events.
type eventFilter struct {
	from, to     when
	kinds, types []string
	actor, key   string
}

// addFilters adds the options for kind, type, actor and key.
func (f *eventFilter) addFilters(cmd *cobra.Command) {
	f.addTaskFilters(cmd)
	cmd.Flags().StringVar(&f.actor, "actor", "", "only events of this actor")
	refuseZero(cmd.Flags(), "actor")
}

// addTaskFilters adds the options for kind, type and key.
func (f *eventFilter) addTaskFilters(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.kinds, "kind", nil, "only events of tasks of this kind; may be repeated")
	cmd.Flags().StringArrayVar(&f.types, "type", nil, "only events of this type, such as failed; may be repeated")
	cmd.Flags().StringVar(&f.key, "key", "", "only events of tasks whose KIND/BIZ_ID begins with this `prefix`")
}

// addRange adds the options for a part of the ledger.
func (f *eventFilter) addRange(cmd *cobra.Command) {
	cmd.Flags().Var(&f.from, "from",
		"only events committed after this time, or from this event on (before the first event: all)")
	cmd.Flags().Var(&f.to, "to", "only events committed by this time, or up to this event")
}

// selected returns a range that contains only the filters.
func (f *eventFilter) selected() ledger.Range {
	r := ledger.Range{Actor: f.actor, Prefix: f.key}
	for _, k := range f.kinds {
		r.Kinds = append(r.Kinds, ledger.Kind(k))
	}
	for _, t := range f.types {
		r.Types = append(r.Types, ledger.EventType(t))
	}
	return r
}

// events returns the whole range.
func (f *eventFilter) events(ctx context.Context, db ledger.DB) (r ledger.Range, err error) {
	r = f.selected()
	if err = r.Validate(); err != nil { // before a query
		return r, err
	}
	if r.From, err = f.from.beginning(ctx, db); err == nil {
		r.To, err = f.to.moment(ctx, db)
	}
	return r, err
}

// eventsFlags are the options of events.
type eventsFlags struct {
	eventFilter
	after     int64
	limit     int
	tail      int
	follow    bool
	count     bool
	utc, data bool
}

// defaultEvents is the number of events that events shows unless it streams.
const defaultEvents = 50

func newEventsCommand(a *app) *cobra.Command {
	var f eventsFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List events in the order of their positions, or follow the newest",
		Long: `List events in the order of their positions. The output ends with the position at which to continue; in
JSON that is "next". With -o jsonl it streams all events, one a line.

Give --to with each page: without it, an event that commits between two calls may have a lower position, and is on no
page. An export that continues later must be a subscriber, or use the "next" of GET /v1/events, to miss no event.

With --tail, show the newest events, oldest first. With --follow, continue with each event that is committed, in the
order of commits, until interrupted; -o json then prints one value a line, too.

With --count, count the events by kind and type, with the bytes of their data, and the times of the first and the last
one. It reads all events up to --to.`,
		Example: "  taskledger events --type buried --from 2026-11-17T00:00:00Z --to 1h\n" +
			"  taskledger events --key coupon.send/order-1 --limit 10\n" +
			"  taskledger events --actor alice -o jsonl\n" +
			"  taskledger events --tail 20\n  taskledger events --follow --type failed --type buried\n" +
			"  taskledger events --count --kind coupon.send --from 24h",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			isTail, err := f.validate(cmd)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("limit") && a.config.output == formatJSONL {
				f.limit = 0 // all
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if f.count {
					return countEvents(ctx, a, pool, f)
				}
				if isTail {
					return tailEvents(ctx, a, pool, f)
				}
				return listEvents(ctx, a, pool, f)
			})
		},
	}
	f.addRange(cmd)
	f.addFilters(cmd)
	cmd.Flags().Int64Var(&f.after, "after", 0, "`position` at which to continue: \"next\" of the previous call\n"+
		"with the same --to; without one, events that commit late are skipped")
	cmd.Flags().IntVar(&f.limit, "limit", defaultEvents, "maximum number of events (with -o jsonl: all)")
	cmd.Flags().IntVar(&f.tail, "tail", 0,
		fmt.Sprintf("only this number of the newest events, 0 to %d (with --follow: %d)", maxTail, defaultTail))
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "begin with the newest events, and continue with new ones")
	cmd.Flags().BoolVar(&f.count, "count", false, "count the events by kind and type")
	addEventFlags(cmd, &f.utc, &f.data)
	return cmd
}

// validate reports whether the newest events are requested, or an error.
func (f *eventsFlags) validate(cmd *cobra.Command) (isTail bool, err error) {
	flags := cmd.Flags()
	isTail = f.follow || flags.Changed("tail")
	if !flags.Changed("tail") {
		f.tail = defaultTail
	}
	if isTail {
		for _, name := range []string{"from", "to", "after", "limit"} {
			if flags.Changed(name) {
				return false, usagef("--%s excludes --tail and --follow", name)
			}
		}
	}
	if f.count {
		for _, name := range []string{"after", "limit", "tail", "follow", "data"} {
			if flags.Changed(name) {
				return false, usagef("--%s excludes --count", name)
			}
		}
	}
	switch {
	case flags.Changed("limit") && f.limit < 1:
		return false, usagef("--limit must be at least 1, got %d", f.limit)
	case f.tail < 0 || f.tail > maxTail:
		return false, usagef("--tail must be between 0 and %d, got %d", maxTail, f.tail)
	}
	return isTail, nil
}

// addEventFlags adds the options of how events are shown.
func addEventFlags(cmd *cobra.Command, utc, data *bool) {
	addUTCFlag(cmd, utc)
	cmd.Flags().BoolVar(data, "data", false, "show args, results and all other data of the events too")
}

// listedEvents is the result as JSON.
type listedEvents struct {
	Events []ledger.Event  `json:"events"`
	Next   ledger.Position `json:"next,omitempty"`
}

func listEvents(ctx context.Context, a *app, db ledger.DB, f eventsFlags) error {
	r, err := f.events(ctx, db)
	if err != nil {
		return err
	}
	r.StartAfter = ledger.Position(f.after)
	list := listedEvents{Events: []ledger.Event{}}
	shown := 0
	last := r.StartAfter
	for e, err := range ledger.Events(ctx, db, r) {
		if err != nil {
			return err
		}
		if f.limit > 0 && shown == f.limit {
			list.Next = last
			break
		}
		shown++
		last = e.Position
		if a.config.output != formatJSONL {
			list.Events = append(list.Events, e)
		} else if err := a.printJSON(e, ""); err != nil {
			return err
		}
	}
	if a.config.output != formatJSONL {
		err = a.print(list, func(w io.Writer) { renderEvents(w, list.Events, f.utc, f.data) })
	}
	if hasMore := noteNext(a, list.Next); (hasMore || f.after > 0) && !f.to.isSet() {
		fmt.Fprintln(a.stderr,
			"without --to, --after skips events that commit late: -o jsonl without --after lists all")
	}
	if shown == 0 {
		fmt.Fprintln(a.stderr, "no such events")
	}
	if err != nil {
		return err
	}
	return f.noteArchived(ctx, a, db, shown == 0)
}

// noteArchived writes a note for people if archived events are left out.
func (f eventsFlags) noteArchived(ctx context.Context, a *app, db ledger.DB, isEmpty bool) error {
	l := leftOut{key: f.key, isEmpty: isEmpty, by: "taskledger history"}
	for _, k := range f.kinds {
		l.kinds = append(l.kinds, ledger.Kind(k))
	}
	var err error
	if l.from, err = f.from.positionFrom(ctx, db); err == nil && f.to.isSet() {
		l.to, err = f.to.positionFrom(ctx, db)
	}
	if err != nil {
		return err
	}
	l.from = max(l.from, ledger.Position(f.after)+1)
	return l.note(ctx, a, db)
}

func renderEvents(w io.Writer, events []ledger.Event, utc, data bool) {
	header := []any{"position", "time", "task", "version", "event", "attempt", "actor", "detail"}
	if data {
		header = append(header, "login", "data", "meta")
	}
	t := newTable(header, 1, 4, 6)
	for _, e := range events {
		row := table.Row{e.Position, clock(e.RecordedAt, utc), plain(e.Key.String()), e.Version, painted(e.Type),
			e.Attempt, plain(e.Actor), shorten(e.ErrorText(), 60)}
		if data {
			row = append(row, plain(e.Login), plain(string(e.Data)), plain(string(e.Meta)))
		}
		t.AppendRow(row)
	}
	renderTable(w, t)
}

// eventStats is the result as JSON.
type eventStats struct {
	Events int64              `json:"events"`
	Bytes  int64              `json:"bytes"`
	Stats  []ledger.EventStat `json:"stats"`
}

// countEvents prints the number of events by kind and type.
func countEvents(ctx context.Context, a *app, pool *pgxpool.Pool, f eventsFlags) error {
	r, err := f.events(ctx, pool)
	if err != nil {
		return err
	}
	result := eventStats{Stats: []ledger.EventStat{}}
	stop := a.busy("counting the events")
	stats, err := ledger.Stats(ctx, pool, r)
	stop()
	if err != nil {
		return err
	}
	for _, s := range stats {
		result.Stats = append(result.Stats, s)
		result.Events, result.Bytes = result.Events+s.Events, result.Bytes+s.Bytes
	}
	err = printList(a, result, result.Stats, func(w io.Writer) { renderStats(w, result, f.utc) })
	if err != nil {
		return err
	}
	return f.noteArchived(ctx, a, pool, result.Events == 0)
}

func renderStats(w io.Writer, result eventStats, utc bool) {
	t := newTable([]any{"kind", "event", "events", "bytes", "first", "last"}, 3, 4)
	for _, s := range result.Stats {
		t.AppendRow(table.Row{plain(string(s.Kind)), s.Type, count(s.Events), count(s.Bytes), clock(s.First, utc),
			clock(s.Last, utc)})
	}
	t.AppendRow(table.Row{"all", "", count(result.Events), count(result.Bytes), "", ""})
	renderTable(w, t)
}
