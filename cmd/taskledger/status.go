package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/health/alarm"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

func (a *app) newStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how publishing and projecting are going, and how many tasks there are",
		Long: `Show how publishing and projecting are going, and how many tasks there are. What a person should
see to stands at the end as "degraded" (kinds whose tasks wait while no worker handles them, for one), in JSON as the list "degraded". Showing it is no failure:
the exit code is 0 also then.`,
		Example: "  taskledger status\n  taskledger status -o json | jq -e '.degraded == []'   # for a monitor",
		Args:    exactArgs(0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.showStatus(cmd.Context()) },
	}
}

// status is the answer as JSON.
type status struct {
	Outbox     outbox.Status           `json:"outbox"`
	Projection projection              `json:"projection"`
	Timers     workers.TimerStatus     `json:"timers"`
	Tasks      []projector.Count       `json:"tasks"`
	Rejected   int64                   `json:"rejected"`  // calls to enqueue, since too many tasks of a kind waited
	Unhandled  []workers.UnhandledKind `json:"unhandled"` // kinds with waiting tasks and no worker
	Paused     []workers.PausedKind    `json:"paused"`
	Degraded   []string                `json:"degraded"` // what a person should see to
}

// projection is how far the projector is behind.
type projection struct {
	Waiting         int   `json:"waiting"`
	WaitingCapped   bool  `json:"waiting_capped"` // there are at least that many
	OldestWaitingMS int64 `json:"oldest_waiting_ms"`
}

// projectionLate is how old an event may be before it counts as a reason to look.
const projectionLate = 30 * time.Second

// timersLate is how long a timer may be due before it counts as a reason to look.
const timersLate = 30 * time.Second

func (a *app) showStatus(ctx context.Context) error {
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := a.readStatus(ctx, pool)
	if err != nil {
		return err
	}
	return a.print(s, s.render)
}

func (a *app) readStatus(ctx context.Context, pool *pgxpool.Pool) (s status, err error) {
	js, unreachable := a.jetStream()
	if js != nil {
		defer js.Conn().Close()
	}
	if s.Outbox, err = outbox.ReadStatus(ctx, pool, js, outbox.StreamConfig{}); err != nil {
		return s, err
	}
	if s.Tasks, err = projector.Counts(ctx, pool); err != nil {
		return s, err
	}
	if s.Rejected, err = ledger.ReadRejected(ctx, pool); err != nil {
		return s, err
	}
	if s.Timers, err = workers.ReadTimers(ctx, pool); err != nil {
		return s, err
	}
	lag, err := projector.Behind(ctx, pool)
	if err != nil {
		return s, err
	}
	s.Projection = projection{lag.Events, lag.Events == projector.MaxLag, lag.Age.Milliseconds()}
	s.Degraded = append([]string{}, s.Outbox.Degraded...)
	if unreachable != "" {
		s.Degraded = append(s.Degraded, a.secrets.hide(unreachable))
	}
	if late := s.Timers.Late(); late > timersLate {
		s.Degraded = append(s.Degraded, fmt.Sprintf("timers have been due for %s: is a scheduler running (taskledger serve)?", age(late)))
	}
	if err := s.addKinds(ctx, pool); err != nil {
		return s, err
	}
	if err := s.addAlarms(ctx, pool); err != nil {
		return s, err
	}
	var origin *feed.OriginError
	switch err := feed.CheckOrigin(ctx, pool, projector.Reader); {
	case errors.As(err, &origin):
		s.Degraded = append(s.Degraded, "the projector refuses to go on: "+origin.Error())
	case err != nil:
		return s, err
	case lag.Age > projectionLate:
		s.Degraded = append(s.Degraded, fmt.Sprintf("the projection is %s behind: is a projector running?", age(lag.Age)))
	}
	return s, nil
}

// addAlarms tells of alarms that do not arrive, which no alarm does.
func (s *status) addAlarms(ctx context.Context, pool *pgxpool.Pool) error {
	alarms, err := alarm.ReadAlarms(ctx, pool, 1)
	for _, l := range alarms {
		if l.Error != "" && !l.Test && l.State != ledger.StateCancelled {
			s.Degraded = append(s.Degraded, fmt.Sprintf("alarm %s, made %s, has not been delivered: %s", l.Task.BizID, ago(l.MadeAt), l.Error))
		}
	}
	return err
}

// jetStream connects to NATS. That it cannot is part of the status and not an error.
func (a *app) jetStream() (js jetstream.JetStream, unreachable string) {
	if a.config.natsURL == "" {
		return nil, envNATSURL + " is not set, so the stream was not looked at"
	}
	nc, err := a.connectNATS(false)
	if err != nil {
		return nil, err.Error()
	}
	if js, err = jetstream.New(nc); err != nil {
		nc.Close()
		return nil, err.Error()
	}
	return js, ""
}

func (s status) render(w io.Writer) {
	renderFields(w, s.fields()...)
	if len(s.Tasks) > 0 {
		fmt.Fprintln(w)
		t := newTable([]any{"kind", "state", "tasks"}, 3)
		for _, c := range s.Tasks {
			t.AppendRow(table.Row{c.Kind, c.State, count(c.Tasks)})
		}
		renderTable(w, t)
	}
	s.renderUnhandled(w)
	for i, reason := range s.Degraded {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, "degraded:", plain(reason))
	}
}

func (s status) fields() [][2]string {
	o := s.Outbox
	fields := [][2]string{
		{"to publish", waiting(o.Waiting, o.WaitingCapped, o.OldestWaiting)},
		{"to project", waiting(int64(s.Projection.Waiting), s.Projection.WaitingCapped, time.Duration(s.Projection.OldestWaitingMS)*time.Millisecond)},
		{"timers", s.timers()},
		{"parked", count(o.Parked)},
		{"rejected", count(s.Rejected)},
	}
	if len(s.Paused) > 0 {
		fields = append(fields, [2]string{"paused kinds", s.pausedKinds()})
	}
	relay := "none"
	switch {
	case o.Relay != nil && o.Relay.Refused:
		relay = "refuses to go on, since " + ago(o.Relay.NoteSince)
	case o.Relay != nil && o.Relay.Alive:
		relay = fmt.Sprintf("%s, since %s", plain(o.Relay.Holder), ago(o.Relay.Since))
	}
	fields = append(fields, [2]string{"relay", relay})
	if st := o.Stream; st != nil {
		fields = append(fields, [2]string{"stream", fmt.Sprintf("%s messages, %s, generation %d",
			count(int64(st.Messages)), room(st.Bytes, st.MaxBytes), o.Generation)})
	}
	if t := o.Oldest; t != nil {
		who := fmt.Sprintf("process %d", t.PID)
		if t.Prepared != "" {
			who = "prepared as " + plain(t.Prepared)
		}
		user := strings.TrimSpace(plain(t.User) + " " + plain(t.Application))
		fields = append(fields, [2]string{"oldest transaction", fmt.Sprintf("%s: %s, %s in %s", age(t.Age), who, user, plain(t.Database))})
	}
	return fields
}

// timers says how the timers are doing.
func (s status) timers() string {
	switch t := s.Timers; {
	case t.NextAt.IsZero():
		return "none"
	case t.Due == 0:
		return "the next is due " + t.NextAt.Format(time.RFC3339)
	case t.DueCapped:
		return fmt.Sprintf("%s+ due, the first for %s", count(int64(t.Due)), age(t.Late()))
	default:
		return fmt.Sprintf("%s due, the first for %s", count(int64(t.Due)), age(t.Late()))
	}
}

// waiting is a number of events with the age of the oldest.
func waiting(n int64, capped bool, oldest time.Duration) string {
	switch {
	case n == 0:
		return "0 events"
	case capped:
		return fmt.Sprintf("%s+ events, the oldest %s old", count(n), age(oldest))
	}
	return fmt.Sprintf("%s events, the oldest %s old", count(n), age(oldest))
}

// room is how much of a limit is used.
func room(used uint64, limit int64) string {
	const mib = 1 << 20
	if limit <= 0 {
		return fmt.Sprintf("%.1f MiB", float64(used)/mib)
	}
	return fmt.Sprintf("%.1f of %.0f MiB", float64(used)/mib, float64(limit)/mib)
}
