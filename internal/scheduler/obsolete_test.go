package scheduler_test

import (
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The timers of tasks that are cancelled, or have otherwise moved on, go long before they are due. Timers that may
// still have an effect stay, among them the deadlines of a task that an operator may release again.
func TestObsoleteTimersGoBeforeTheyAreDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	far := time.Date(9998, time.May, 1, 0, 0, 0, 0, time.UTC)
	at, start := ledger.EnqueueOptions{RunAt: far}, ledger.EnqueueOptions{StartBy: far}
	finish := ledger.EnqueueOptions{FinishBy: far}
	var want []string
	for _, test := range []struct {
		id      string
		options ledger.EnqueueOptions
		events  []ledger.EventType
		stays   bool
	}{
		{id: "scheduled", options: at, stays: true},
		{id: "cancelled", options: at, events: []ledger.EventType{ledger.EventCancelled}},
		{id: "released", options: at, events: []ledger.EventType{ledger.EventReleased}},
		{id: "start: waits", options: start, stays: true},
		{id: "start: begun", options: start, events: []ledger.EventType{ledger.EventStarted}},
		{id: "start: cancelled", options: start, events: []ledger.EventType{ledger.EventCancelled}, stays: true},
		{id: "finish: runs", options: finish, events: []ledger.EventType{ledger.EventStarted}, stays: true},
		{id: "finish: dead", options: finish, events: []ledger.EventType{ledger.EventBuried}, stays: true},
		{id: "finish: done", options: finish, events: []ledger.EventType{ledger.EventSucceeded}},
	} {
		ledgertest.Append(t, b.DB, b.Later(test.id, test.options), test.events...)
		if test.stays {
			want = append(want, test.id)
		}
	}
	b.Schedule()
	timers := func() []string {
		return servicetest.One[[]string](b, `
			select array_agg(distinct t.biz_id order by t.biz_id) from taskledger.timer t
			 where t.biz_id <> 'soon'`)
	}
	slices.Sort(want)
	b.Await("the obsolete timers to go", func() bool { return len(timers()) <= len(want) })
	if diff := difference.Of(want, timers()); diff != "" {
		t.Errorf("timers (-want +got):\n%s", diff)
	}
}

// A page costs the same whatever the number of timers, with the statistics of an empty table and with true ones, and a
// walk reaches the obsolete ones behind others.
func TestCostOfObsoleteTimers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("analyze taskledger.timer; analyze taskledger.event")
	const live, cancelled = 20_000, 5_000
	b.Forge(`
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor)
		select 'test.later', i::text, 1, 0, 0, 'scheduled', 'a' from generate_series(1, $1::integer) i`, live+cancelled)
	b.Forge(`
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor)
		select 'test.later', i::text, 2, 0, 0, 'cancelled', 'a' from generate_series($1::integer + 1, $2::integer) i`,
		live, live+cancelled)
	b.Forge(`
		insert into taskledger.timer
		select clock_timestamp() + interval '1 hour', 'test.later', i::text, 1, 'due'
		  from generate_series(1, $1::integer) i`, live+cancelled)
	for _, statistics := range []string{"of an empty table", "true"} {
		blocks := b.blocks("timers_obsolete.sql", "-infinity", "", "", 1)
		t.Logf("statistics %s: a page of one timer reads %d blocks", statistics, blocks)
		if blocks > 40 { // the table alone has hundreds
			t.Errorf("statistics %s: a page of one timer reads %d blocks", statistics, blocks)
		}
		b.Exec("vacuum analyze taskledger.timer")
		b.Exec("vacuum analyze taskledger.event")
	}
	s := b.scheduler()
	for range (live + cancelled) / 1000 {
		if err := s.RemoveObsolete(b.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := servicetest.One[int](b, "select count(*)::integer from taskledger.timer"); n != live {
		t.Errorf("%d timers, want %d", n, live)
	}
}
