package health_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The condition of late timers has the cause that the database shows, and its cure.
func TestWhyTimersAreLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ledgertest.Append(t, b.db, ledgertest.Key(t, "coupon.send/1"), ledger.EventSnoozed)
	const late = "update taskledger.timer set due_at = clock_timestamp() - interval '31 s'"
	ledgertest.ExecAsOwner(t, b.db, late)
	held := func() health.Condition {
		t.Helper()
		c := health.Config{DB: ledgertest.As(t, b.db, ledgertest.Owner)} // sees all sessions
		c.Thresholds = map[health.Name]time.Duration{health.TimersLate: time.Second}
		r, err := health.Read(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Degraded {
			if d.Name == health.TimersLate {
				return d
			}
		}
		t.Fatalf("not among %+v", r.Degraded)
		return health.Condition{}
	}
	check := func(text, cure string) {
		t.Helper()
		if got := held(); !strings.HasSuffix(got.Text, text) || !strings.HasPrefix(got.Cure, cure) {
			t.Errorf("text %q, want the end %q; cure %q, want the beginning %q", got.Text, text, got.Cure, cure)
		}
	}
	check("timers due: 1; no process runs taskledger serve", "start: taskledger serve")
	b.takeLease()
	check("timers due: 1", "is a scheduler running? start: taskledger serve; if one is, its log shows")

	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	ledgertest.Enqueue(t, tx, ledgertest.Key(t, "coupon.send/2"), "")
	var pid int
	if err := tx.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	b.await("the transaction to be older than the threshold", func() bool {
		return strings.Contains(held().Text, "has appended events and may be locking their tasks")
	})
	check("s, has appended events and may be locking their tasks",
		fmt.Sprintf("end it in its program, or: select pg_terminate_backend(%d)", pid))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ledgertest.ExecAsOwner(t, b.db, `
		insert into taskledger.timer (due_at, kind, biz_id, version, reason)
		select clock_timestamp() - interval '1 minute', 'coupon.send', i::text, 1, 'due'
		  from generate_series(1, 1000) i`)
	check("timers due: 1,001; schedulers fire them in batches, taking turns between kinds",
		"if the number is falling, wait")
}
