package health_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// A report counts all schedules and subscribers, and has at most 100 of each: those that are late for the longest time.
// One more condition counts the others.
func TestManySchedulesAndSubscribers(t *testing.T) {
	t.Parallel()
	const many, most = 130, 100
	b := setup(t)
	b.takeLease()
	var schedules []periodic.Schedule
	for i := range many {
		ledgertest.Enqueue(t, b.db, ledgertest.Key(t, fmt.Sprintf("coupon.send/%03d", i)), "")
		schedules = append(schedules,
			periodic.Schedule{Name: fmt.Sprintf("s%03d", many-1-i), Kind: "report.make", Every: time.Hour})
	}
	if _, err := periodic.Apply(t.Context(), b.db, schedules, nil); err != nil {
		t.Fatal(err)
	}
	b.exec(`update taskledger.schedule
		set next_at = clock_timestamp() - interval '1 hour' - substr(name, 2)::integer * interval '1 minute'`)
	b.exec(`update taskledger.schedule set paused_at = clock_timestamp(), paused_by = 'ada', pause_reason = ''
		where name = $1`, fmt.Sprintf("s%03d", many-1))
	operator := ledgertest.As(t, b.db, "operator")
	rows, err := b.db.Query(t.Context(),
		"select position from taskledger.event where kind = 'coupon.send' order by position")
	if err != nil {
		t.Fatal(err)
	}
	positions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range positions {
		name := fmt.Sprintf("r%03d", many-1-i)
		if err := feed.Seek(t.Context(), operator, name, feed.After(ledger.Position(p))); err != nil {
			t.Fatal(err)
		}
	}
	r := b.read(health.Config{
		Only:       []health.Name{health.ScheduleLate, health.SubscriberBehind},
		Thresholds: map[health.Name]time.Duration{health.SubscriberBehind: time.Nanosecond},
	})
	held := map[health.Name]int{}
	others := map[health.Name]string{}
	for _, c := range r.Degraded {
		if c.About == "" {
			others[c.Name] = c.Text
			continue
		}
		held[c.Name]++
	}
	for name, want := range map[health.Name]string{
		health.ScheduleLate:     "may also be late: 29; to list them: taskledger show schedules",
		health.SubscriberBehind: "may also be late: 30; to list them: taskledger show subscribers",
	} {
		if !strings.HasSuffix(others[name], want) {
			t.Errorf("%s: %q, want %q at its end", name, others[name], want)
		}
	}
	if s := r.Schedules; s.Total != many || s.Due != many-1 || s.Paused != 1 || held[health.ScheduleLate] != most ||
		s.Late[0].Name != "s128" || s.Late[most-1].Name != "s029" {
		t.Errorf("schedules: %+v; conditions: %v", s, held)
	}
	if n := r.SubscribersTotal; n != many || len(r.Subscribers) != most || held[health.SubscriberBehind] != most ||
		r.Subscribers[0].Name != "r030" || r.Subscribers[most-1].Name != "r129" {
		t.Errorf("%d subscribers; conditions: %v; the report has %d, the first one is %+v", n, held, len(r.Subscribers),
			r.Subscribers[0])
	}
}

// The numbers of thousands of kinds are read once for many reports. A later report has them while a read takes long.
func TestNumbersOfManyKindsAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("select taskledger.enqueue('many.k' || i, 'a') from generate_series(1, 5000) i")
	b.project()
	c := health.Config{Only: []health.Name{health.KindUnhandled}, Numbers: &health.Numbers{},
		Thresholds: map[health.Name]time.Duration{health.KindUnhandled: time.Nanosecond}}
	check := func() {
		t.Helper()
		if r := b.read(c); len(r.Unhandled) != 5000 || len(r.Degraded) != 1 {
			t.Errorf("%d kinds, %d conditions", len(r.Unhandled), len(r.Degraded))
		}
	}
	check()
	tx, err := ledgertest.As(t, b.db, ledgertest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "lock taskledger.task_count in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	check()
}
