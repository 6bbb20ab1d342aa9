package alarm_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/health/alarm"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// Of any number of watchers one makes an alarm and one delivers it.
func TestWatchersRace(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	for range 4 {
		b.background(b.watcher(b.config(h.receiver("hook"))).Run)
	}
	for i, prefix := range []string{"a-", "b-", "c-"} {
		b.die("coupon.send", prefix, 1, "out of coupons")
		b.await("an alarm", func() bool {
			alarms := b.alarms()
			return len(alarms) == i+1 && alarms[0].State == ledger.StateSucceeded
		})
	}
	if requests := h.got(); len(requests) != 3 {
		t.Errorf("delivered %d times, want 3", len(requests))
	}
	ledgertest.Check(t, b.db)
}

// An alarm that cannot be delivered ends dead, and no alarm tells of that; the next one tells what it told.
func TestDeadAlarm(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	h.answer(500)
	c := b.config(h.receiver("hook"))
	c.Retry = &ledger.RetryPolicy{Attempts: 1}
	c.Rules.Kinds = []alarm.KindRule{{Kind: "coupon.send", DeadOver: 1}}
	w := b.watcher(c)
	b.die("coupon.send", "a-", 2, "out of coupons")
	b.pass(w)
	b.projected()
	first := b.alarms()[0]
	if first.State != ledger.StateDead {
		t.Fatalf("the alarm is %s", first.State)
	}
	if want := []ledger.EventType{"enqueued", "started", "failed", "buried"}; !slices.Equal(b.history(first.Task), want) {
		t.Errorf("history %v", b.history(first.Task))
	}
	h.answer(200)
	b.pass(w)
	b.pass(w) // nothing is new
	requests := h.got()
	if len(requests) != 2 {
		t.Fatalf("delivered %d times, want 2", len(requests))
	}
	before, after := verified(t, requests[0]), verified(t, requests[1])
	if before.Alarm == after.Alarm || len(before.Items) != 2 || len(after.Items) != 2 || before.Items[0].Text != after.Items[0].Text {
		t.Errorf("told %+v, then %+v", before, after)
	}
}

// Cancelled by an operator, an alarm counts as told.
func TestCancelledAlarm(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	h.answer(500)
	c := b.config(h.receiver("hook"))
	c.Retry = &ledger.RetryPolicy{Ladder: []time.Duration{time.Hour}}
	w := b.watcher(c)
	b.die("coupon.send", "a-", 2, "out of coupons")
	b.pass(w)
	b.pass(w) // it is not due
	task := ledgertest.Append(t, b.db, b.alarms()[0].Task, ledger.EventCancelled)
	b.pass(w)
	if alarms := b.alarms(); len(alarms) != 1 || len(h.got()) != 1 {
		t.Errorf("%+v after %s", alarms, task.State)
	}
}

// Every limit is told when it is exceeded, and when it is no longer.
func TestConditions(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	lag := time.Hour
	read := func(context.Context) (time.Duration, error) { return lag, nil }
	c := b.config(h.receiver("hook"))
	c.RelayLag, c.ProjectionLag = read, read
	c.Rules.RelayLag, c.Rules.ProjectionLag = alarm.Duration(time.Minute), alarm.Duration(time.Minute)
	c.Rules.IgnoreDead = []ledger.Kind{"coupon.send"}
	c.Rules.Kinds = []alarm.KindRule{
		{Kind: "coupon.send", DeadOver: 2},
		{Kind: "mail.send", DeadOver: 2, WaitingOver: 1},
		{Kind: "sms.send", WaitingOver: alarm.Duration(time.Hour)},
	}
	b.die("coupon.send", "a-", 3, "out of coupons")
	b.die("mail.send", "b-", 2, "no such address")
	waits, fresh := ledgertest.Key(t, "mail.send/waits"), ledgertest.Key(t, "sms.send/fresh")
	ledgertest.Enqueue(t, b.db, waits, "")
	ledgertest.Enqueue(t, b.db, fresh, "")
	b.projected()
	schedule := periodic.Schedule{Name: "nightly", Kind: "report.make", Every: time.Hour, Anchor: time.Now().Add(30 * time.Minute).Truncate(time.Second)}
	if _, err := periodic.Apply(t.Context(), b.db, []periodic.Schedule{schedule}, nil); err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "sms.send/later"), "")
	ledgertest.Append(t, b.db, ledgertest.Key(t, "sms.send/later"), ledger.EventSnoozed)
	b.exec("update taskledger.timer set due_at = clock_timestamp() - interval '6 minutes'")
	b.exec("update taskledger.schedule set next_at = next_at - interval '3 hours', passed = 7, passed_at = clock_timestamp()")
	w := b.watcher(c)
	b.pass(w)
	type told struct{ what, about, status string }
	var items []told
	read1 := func(r request) {
		items = nil
		for _, i := range verified(t, r).Items {
			items = append(items, told{i.What, i.About, i.Status})
		}
	}
	read1(h.got()[0])
	if want := []told{
		{"dead", "mail.send", "new"}, {"schedule_missed", "nightly", "new"}, {"relay_lag", "", "new"}, {"projection_lag", "", "new"}, {"timers_late", "", "new"},
		{"dead_over", "coupon.send", "new"}, {"waiting_over", "mail.send", "new"}, {"schedule_late", "nightly", "new"},
	}; !slices.Equal(items, want) {
		t.Errorf("told %v, want %v", items, want)
	}
	b.pass(w)
	if n := len(h.got()); n != 1 {
		t.Fatalf("%d alarms while nothing changed", n)
	}
	lag = 0
	b.exec("update taskledger.timer set due_at = clock_timestamp() - interval '4 minutes'")
	ledgertest.Append(t, b.db, waits, ledger.EventStarted)
	ledgertest.Append(t, b.db, ledgertest.Key(t, "coupon.send/a-1"), ledger.EventReleased)
	b.exec("update taskledger.schedule set next_at = clock_timestamp() + interval '1 hour'")
	b.projected()
	// What is expensive to look at is looked at seldom.
	over := map[told]bool{}
	b.await("the end of it", func() bool {
		b.pass(w)
		for _, r := range h.got()[1:] {
			read1(r)
			for _, i := range items {
				over[i] = true
			}
		}
		return len(over) == 6
	})
	for _, want := range []told{
		{"dead_over", "coupon.send", "over"}, {"projection_lag", "", "over"}, {"relay_lag", "", "over"},
		{"schedule_late", "nightly", "over"}, {"waiting_over", "mail.send", "over"},
		{"timers_late", "", "over"},
	} {
		if !over[want] {
			t.Errorf("not told: %v", want)
		}
	}
}

// What holds is told again after a while, and what dies again after a release is new.
func TestRemindersAndDyingAgain(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	c := b.config(h.receiver("hook"))
	c.Rules.Remind = alarm.Duration(time.Microsecond)
	c.Rules.Kinds = []alarm.KindRule{{Kind: "coupon.send", DeadOver: 1}}
	w := b.watcher(c)
	b.die("coupon.send", "a-", 2, "out of coupons")
	b.pass(w)
	b.pass(w)
	last := verified(t, h.got()[1])
	if len(last.Items) != 1 || last.Items[0].Status != alarm.StatusHolds || !last.Items[0].Since.Equal(verified(t, h.got()[0]).Items[1].Since) {
		t.Errorf("told %+v", last.Items)
	}
	ledgertest.Append(t, b.db, ledgertest.Key(t, "coupon.send/a-1"), ledger.EventReleased, ledger.EventBuried)
	b.projected()
	b.await("its new death", func() bool {
		b.pass(w)
		requests := h.got()
		i := verified(t, requests[len(requests)-1]).Items[0]
		return i.What == alarm.WhatDead && i.Tasks == 2
	})
}

// News are gathered before they are told.
func TestGather(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	c := b.config(h.receiver("hook"))
	c.Rules.Gather = alarm.Duration(time.Hour)
	b.die("coupon.send", "a-", 2, "out of coupons")
	w := b.watcher(c)
	b.pass(w)
	b.pass(w)
	if n := len(b.alarms()); n != 0 {
		t.Errorf("%d alarms at once", n)
	}
}

func TestTest(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	r := h.receiver("hook")
	got, err := alarm.Test(t.Context(), b.db, r)
	if err != nil || got.State != ledger.StateSucceeded || verified(t, h.got()[0]).Items[0].What != alarm.WhatTest {
		t.Errorf("%+v, %v", got, err)
	}
	h.answer(404)
	if got, err = alarm.Test(t.Context(), b.db, r); err != nil || got.State != ledger.StateDead || got.Error == "" {
		t.Errorf("%+v, %v", got, err)
	}
	// Tests stand in nobody's way.
	h.answer(200)
	c := b.config(r)
	c.Rules.Every = alarm.Duration(time.Hour)
	b.die("coupon.send", "a-", 1, "out of coupons")
	b.pass(b.watcher(c))
	if requests := h.got(); len(requests) != 3 || verified(t, requests[2]).Items[0].What != alarm.WhatDead {
		t.Errorf("%d requests", len(requests))
	}
}

// However much dies of however many errors, the alarm is one that the ledger takes.
func TestMuchIsLeftOut(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	b.exec(`
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data)
		select v, 0, 1, case v when 1 then 'enqueued' else 'buried' end::taskledger.event_type, 'kind.' || k, repeat('i', 250) || e,
		       case v when 2 then json_build_object('error', json_build_object('message', repeat(E'\x01', 1000), 'fingerprint', left(md5(e::text), 16))) end
		  from generate_series(1, 60) k cross join generate_series(1, 20) e cross join generate_series(1, 2) v
		 order by k, e, v`)
	b.projected()
	b.pass(b.watcher(b.config(h.receiver("hook"))))
	m := verified(t, h.got()[0])
	if len(m.Items) != 50 || m.More != 10 || len(m.Items[0].Groups) != 10 || m.Items[0].Tasks != 20 {
		t.Errorf("%d items and %d more, %d groups", len(m.Items), m.More, len(m.Items[0].Groups))
	}
}

// An alarm that its processes seem to die of is given up, and not for good: the next one tells it.
func TestAlarmThatKills(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newHook(t)
	h.answer(500)
	c := b.config(h.receiver("hook"))
	c.Retry = &ledger.RetryPolicy{Ladder: []time.Duration{time.Hour}}
	w := b.watcher(c)
	b.die("coupon.send", "a-", 2, "out of coupons")
	b.pass(w)
	first := b.alarms()[0].Task
	started := ledger.EventStarted
	ledgertest.Append(t, b.db, first, ledger.EventReleased, started, started, started, started, started)
	b.pass(w)
	task, err := ledger.Load(t.Context(), b.db, first)
	if err != nil || task.State != ledger.StateDead || task.Error != "5 processes were lost delivering it" {
		t.Errorf("%+v, %v", task, err)
	}
	if len(h.got()) != 1 {
		t.Errorf("delivered %d times", len(h.got()))
	}
	h.answer(200)
	b.pass(w)
	if alarms := b.alarms(); len(alarms) != 2 || alarms[0].State != ledger.StateSucceeded {
		t.Errorf("alarms %+v", alarms)
	}
}
