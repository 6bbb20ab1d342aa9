package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// maxNamed is the greatest number of paused kinds and of projections that are shown.
	maxNamed = 5
	// maxShown is the greatest number of kinds, of subscribers and of conditions of one name that are shown.
	maxShown = 20
)

func newStatusCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of all services, and the conditions that an operator should act on",
		Long: `Show the state of publishing, projecting, timers and kinds, and the number of tasks. Each condition
that an operator should act on is listed at the end as "degraded", with its name, the time since
which it holds, and a cure. docs/operations.md lists all conditions. The exit code is 0 even if
conditions hold.

Of more than 20 kinds, subscribers or conditions of one name, the worst are shown: kinds with dead tasks
first, then those with the most unfinished ones. JSON has all.`,
		Example: "  taskledger status\n" +
			"  taskledger status -o json | jq -e '.degraded == []'   # for a monitor\n" +
			"  taskledger status -o json | jq -r '.degraded[] | .name + \": \" + .text + \"; \" + .cure'",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return showStatus(ctx, a, pool, all)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show all kinds, subscribers and conditions")
	return a.watchable(cmd)
}

func showStatus(ctx context.Context, a *app, db *pgxpool.Pool, all bool) error {
	js, failure := a.jetStream()
	if js != nil {
		defer js.Conn().Close()
	}
	r, err := health.Read(ctx, health.Config{
		DB: db, JetStream: js, NATSError: failure, Alarms: alarm.ReadUndelivered,
	})
	if err != nil {
		return err
	}
	return a.print(r, status{r, all}.render)
}

// jetStream connects to NATS. Its error is part of the status, so its text contains no secret.
func (a *app) jetStream() (jetstream.JetStream, error) {
	nc, err := a.connectNATS(false)
	if f, ok := errors.AsType[*failure](err); ok && f.isNoUser {
		return nil, nil // the stream is not part of the status
	}
	if err != nil {
		f := describe(err)
		return nil, errors.New(a.secrets.hide(f.message + ": " + f.hint))
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return js, nil
}

// status is a report as text.
type status struct {
	health.Report

	all bool // without bounds
}

func (s status) render(w io.Writer) {
	renderFields(w, s.fields()...)
	s.renderTasks(w)
	s.renderSubscribers(w)
	s.renderUnhandled(w)
	s.renderDegraded(w)
}

// cut returns how many of n elements are shown.
func (s status) cut(n int) int {
	if s.all {
		return n
	}
	return min(n, maxShown)
}

// noteMore writes a line about elements that are not shown.
func noteMore(w io.Writer, n int, elements string) {
	if n > 0 {
		fmt.Fprintf(w, "and %s more %s: taskledger status --all\n", count(int64(n)), elements)
	}
}

// statusStates are the states with a column in the matrix of tasks. The others share one.
var statusStates = []ledger.State{
	ledger.StateAvailable, ledger.StateRunning, ledger.StateRetrying, ledger.StateScheduled, ledger.StateDead,
	ledger.StateSucceeded,
}

// maxKindName is the number of characters of a kind in the matrix of tasks, whose lines have at most 120 columns.
const maxKindName = 40

// kindTasks is the number of tasks of a kind by state.
type kindTasks struct {
	kind                    ledger.Kind
	tasks                   map[ledger.State]int64
	dead, unfinished, other int64
}

// renderTasks writes a matrix of the tasks by kind and state: by name, or, of too many kinds, the worst first.
func (s status) renderTasks(w io.Writer) {
	if len(s.Tasks) == 0 {
		return
	}
	fmt.Fprintln(w)
	var kinds []*kindTasks
	for i, c := range s.Tasks { // sorted by kind
		if i == 0 || c.Kind != s.Tasks[i-1].Kind {
			kinds = append(kinds, &kindTasks{kind: c.Kind, tasks: map[ledger.State]int64{}})
		}
		k := kinds[len(kinds)-1]
		k.tasks[c.State] += c.Tasks
		switch {
		case c.State == ledger.StateDead:
			k.dead += c.Tasks
		case !c.State.Finished():
			k.unfinished += c.Tasks
		}
		if !slices.Contains(statusStates, c.State) {
			k.other += c.Tasks
		}
	}
	shown := s.cut(len(kinds))
	if shown < len(kinds) {
		slices.SortStableFunc(kinds, func(a, b *kindTasks) int {
			return cmp.Or(cmp.Compare(b.dead, a.dead), cmp.Compare(b.unfinished, a.unfinished))
		})
	}
	header := []any{"kind"}
	for _, state := range statusStates {
		header = append(header, string(state))
	}
	t := newTable(append(header, "other"), 2, 3, 4, 5, 6, 7, 8)
	for _, k := range kinds[:shown] {
		row := table.Row{shorten(string(k.kind), maxKindName)}
		for _, state := range statusStates {
			row = append(row, statePaints[string(state)].number(k.tasks[state]))
		}
		t.AppendRow(append(row, faint.number(k.other)))
	}
	renderTable(w, t)
	noteMore(w, len(kinds)-shown, "kinds")
}

// renderSubscribers writes the report's subscribers: if there are too many, only the furthest behind.
func (s status) renderSubscribers(w io.Writer) {
	if len(s.Subscribers) == 0 {
		return
	}
	fmt.Fprintln(w)
	all := s.Subscribers
	if shown := s.cut(len(all)); shown < len(all) {
		all = slices.SortedStableFunc(slices.Values(all), func(a, b subscribers.Subscriber) int {
			return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(b.Lag, a.Lag))
		})[:shown]
	}
	renderReaders(w, withStates(all, s.SubscriberStates))
	if n := s.SubscribersTotal - len(all); n > 0 {
		fmt.Fprintf(w, "other subscribers, less far behind: %s; all: taskledger show subscribers\n", count(int64(n)))
	}
}

func (s status) fields() [][2]string {
	o, p := s.Outbox, s.Projection
	oldest := time.Duration(p.OldestWaitingMS) * time.Millisecond
	var fields [][2]string
	if !o.IsOff {
		fields = append(fields, [2]string{"to publish", waitingText(o.Waiting, o.WaitingCapped, o.OldestWaiting)})
	}
	fields = append(fields, [2]string{"to project", waitingText(int64(p.Waiting), p.WaitingCapped, oldest)})
	fields = append(fields, [][2]string{
		{"timers", timersText(s.Timers)},
		{"parked", printable.Counted(o.Parked)},
		{"rejected", count(s.Rejected)},
	}...)
	if s.Schedules.Total > 0 {
		fields = append(fields, [2]string{"schedules", s.schedules()})
	}
	if len(s.Schedules.PausedNames) > 0 {
		text := printable.Names(s.Schedules.PausedNames, maxNamed)
		if more := s.Schedules.Paused - len(s.Schedules.PausedNames); more > 0 {
			text = count(int64(s.Schedules.Paused)) + ", first " + text
		}
		fields = append(fields, [2]string{"paused schedules", text})
	}
	if len(s.Paused) > 0 {
		names := make([]string, len(s.Paused))
		for i, k := range s.Paused {
			names[i] = string(k.Kind)
		}
		fields = append(fields, [2]string{"paused kinds", printable.Names(names, maxNamed)})
	}
	if o.IsOff {
		fields = append(fields, [2]string{"stream", "off"})
	} else {
		fields = append(fields, [2]string{"relay", s.relay()})
	}
	fields = append(fields, [2]string{"dispatcher", s.dispatcher()})
	if st := o.Stream; st != nil {
		fields = append(fields, [2]string{"stream", fmt.Sprintf("%s messages, %s, generation %d",
			count(int64(st.Messages)), sizeText(st.Bytes, st.MaxBytes), o.Generation)})
	}
	if s.Archive != nil {
		fields = append(fields, [2]string{"archive", archiveText(*s.Archive, s.At)})
	}
	if t := o.Oldest; t != nil {
		process := fmt.Sprintf("process %d", t.PID)
		if t.Prepared != "" {
			process = "prepared as " + plain(t.Prepared)
		}
		user := strings.TrimSpace(plain(t.User) + " " + plain(t.Application))
		fields = append(fields, [2]string{"oldest transaction",
			fmt.Sprintf("%s: %s, %s in %s", age(t.Age), process, user, plain(t.Database))})
	}
	return fields
}

// archiveText describes the archive: its last run, the tasks that a reader holds, and a run that has not ended.
func archiveText(s archiver.State, now time.Time) string {
	var parts []string
	if !s.EndedAt.IsZero() {
		parts = append(parts, fmt.Sprintf("last run %s ago, of tasks that ended before %s: %s removed",
			age(now.Sub(s.EndedAt)), clock(s.Cutoff, true)[:16], count(s.Tasks)))
	}
	if s.Held > 0 {
		parts = append(parts, fmt.Sprintf("%s held by %s, the oldest ended %s ago", count(s.Held), plain(s.HeldBy),
			age(now.Sub(s.HeldSince))))
	}
	if !s.UnfinishedSince.IsZero() {
		parts = append(parts, "a run has begun "+age(now.Sub(s.UnfinishedSince))+" ago")
	}
	return strings.Join(parts, "; ")
}

func (s status) dispatcher() string {
	switch d := s.Dispatcher; {
	case d.Epoch == 0:
		return "none"
	case !d.Alive:
		return "none; the last one was number " + count(d.Epoch)
	default:
		return fmt.Sprintf("number %s, active since %s", count(d.Epoch), ago(d.Since))
	}
}

func (s status) schedules() string {
	text := count(int64(s.Schedules.Total))
	if late := s.Schedules.Late; len(late) > 0 {
		text += fmt.Sprintf(", %s due, the first for %s", count(int64(s.Schedules.Due)), age(s.At.Sub(late[0].NextAt)))
	}
	return text
}

func (s status) relay() string {
	switch l := s.Outbox.Relay; {
	case l != nil && l.Refused:
		return "refuses to continue, since " + ago(l.NoteSince)
	case l != nil && l.Alive:
		return fmt.Sprintf("%s, since %s", plain(l.Holder), ago(l.Since))
	}
	return "none"
}

func (s status) renderUnhandled(w io.Writer) {
	if len(s.Unhandled) == 0 {
		return
	}
	fmt.Fprintln(w)
	unhandled := s.Unhandled
	shown := s.cut(len(unhandled))
	if shown < len(unhandled) { // an unknown time first, then the longest
		unhandled = slices.SortedStableFunc(slices.Values(unhandled), func(a, b operator.UnhandledKind) int {
			return cmp.Compare(waitOf(b), waitOf(a))
		})
	}
	t := newTable([]any{"kind without worker", "waiting", "oldest"}, 2)
	for _, u := range unhandled[:shown] {
		oldest := "unknown"
		if u.OldestMS != nil {
			oldest = age(time.Duration(*u.OldestMS) * time.Millisecond)
		}
		t.AppendRow(table.Row{plain(string(u.Kind)), count(u.Waiting), oldest})
	}
	renderTable(w, t)
	noteMore(w, len(unhandled)-shown, "kinds without worker")
}

// waitOf returns how many milliseconds the oldest task of a kind has waited.
func waitOf(u operator.UnhandledKind) int64 {
	if u.OldestMS == nil {
		return math.MaxInt64
	}
	return *u.OldestMS
}

func (s status) renderDegraded(w io.Writer) {
	if len(s.Degraded) > 0 {
		fmt.Fprintln(w)
	}
	conditions := s.Degraded
	if s.cut(len(conditions)) < len(conditions) { // the oldest first
		conditions = slices.SortedStableFunc(slices.Values(conditions), func(a, b health.Condition) int {
			if a.Since.IsZero() != b.Since.IsZero() { // an unknown time is the last
				return -a.Since.Compare(b.Since)
			}
			return a.Since.Compare(b.Since)
		})
	}
	listed := make(map[health.Name]int)
	for _, c := range conditions {
		if c.About != "" { // others are the only ones of their name, or count the rest
			listed[c.Name]++
		}
		if c.About != "" && listed[c.Name] > s.cut(listed[c.Name]) {
			continue
		}
		since := ""
		if !c.Since.IsZero() {
			since = ", since " + ago(c.Since)
		}
		writeProse(w, fmt.Sprintf("%s %s%s: %s", red.on("degraded:"), c.Name, since, plain(c.Text)), "  ")
		writeProse(w, fmt.Sprintf("  %s %s", faint.on("cure:"), c.Cure), "    ")
	}
	for _, d := range health.Definitions() {
		noteMore(w, listed[d.Name]-s.cut(listed[d.Name]), "conditions "+string(d.Name))
	}
}

// timersText returns the state of the timers.
func timersText(t scheduler.TimerStatus) string {
	switch {
	case t.NextAt.IsZero():
		return "none"
	case t.Due == 0:
		return "the next is due " + t.NextAt.Format(time.RFC3339)
	case t.DueCapped:
		return fmt.Sprintf("%s+ due, the first for %s", count(int64(t.Due)), age(t.Late()))
	}
	return fmt.Sprintf("%s due, the first for %s", count(int64(t.Due)), age(t.Late()))
}

// waitingText returns a number of events with the age of the oldest.
func waitingText(n int64, isCapped bool, oldest time.Duration) string {
	switch {
	case n == 0:
		return "0 events"
	case isCapped:
		return fmt.Sprintf("%s+ events, the oldest %s old", count(n), age(oldest))
	}
	return fmt.Sprintf("%s events, the oldest %s old", count(n), age(oldest))
}

// sizeText returns a size with its limit. A limit that is not positive is not shown.
func sizeText(bytes uint64, limit int64) string {
	const mib = 1 << 20
	if limit <= 0 {
		return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
	}
	return fmt.Sprintf("%.1f of %.0f MiB", float64(bytes)/mib, float64(limit)/mib)
}
