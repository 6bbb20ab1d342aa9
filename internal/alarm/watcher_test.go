package alarm_test

import (
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// Of any number of watchers, one creates an alarm and one delivers it.
func TestWatchersRace(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
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

// An alarm that cannot be delivered is dead. No alarm reports that, and the next alarm reports its news.
func TestDeadAlarm(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	h.answer(500)
	c := b.config(h.receiver("hook"))
	c.SetRetry(ledger.RetryPolicy{Attempts: 1})
	c.Rules.Kinds = []alarm.KindRule{{Kind: "coupon.send", DeadOver: 1}}
	w := b.watcher(c)
	b.die("coupon.send", "a-", 2, "out of coupons")
	b.pass(w)
	b.awaitProjected()
	first := b.alarms()[0]
	if first.State != ledger.StateDead {
		t.Fatalf("the alarm is %s", first.State)
	}
	want := []ledger.EventType{"enqueued", "started", "failed", "buried"}
	if got := b.history(first.Task); !slices.Equal(got, want) {
		t.Errorf("history %v, want %v", got, want)
	}
	h.answer(200)
	b.pass(w)
	b.pass(w) // nothing is new
	requests := h.got()
	if len(requests) != 2 {
		t.Fatalf("delivered %d times, want 2", len(requests))
	}
	before, after := verified(t, requests[0]), verified(t, requests[1])
	if before.Alarm == after.Alarm || len(before.Items) != 2 || len(after.Items) != 2 {
		t.Fatalf("reported %+v, then %+v", before, after)
	}
	if before.Items[0].Text != after.Items[0].Text {
		t.Errorf("reported %+v, then %+v", before, after)
	}
}

// A receiver whose newest alarm cannot be read, because a program has enqueued it, keeps no other one from its alarms.
func TestReceiverThatFailsSilencesNoOther(t *testing.T) {
	t.Parallel()
	b, broken, works := setup(t), newWebhookServer(t), newWebhookServer(t)
	b.exec(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data) values
		(1, 0, 0, 'enqueued', 'taskledger.alarm', 'a/9999999999999999999', '{}')`)
	b.background(b.watcher(b.config(broken.receiver("a"), works.receiver("b"))).Run)
	b.die("coupon.send", "c-", 1, "out of coupons")
	b.await("the other one's alarm", func() bool { return len(works.got()) > 0 })
}

// An alarm that an operator cancels counts as delivered.
func TestCancelledAlarm(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	h.answer(500)
	c := b.config(h.receiver("hook"))
	c.SetRetry(ledger.RetryPolicy{Ladder: []time.Duration{time.Hour}})
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

// reported is an item without its texts.
type reported struct{ what, about, status string }

func reportedIn(t *testing.T, r request) (items []reported) {
	t.Helper()
	for _, i := range verified(t, r).Items {
		items = append(items, reported{what: i.What, about: i.About, status: i.Status})
	}
	return items
}

// Every condition is reported when it begins and when it is over.
func TestConditions(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	const lag = 500 * time.Millisecond
	c := b.config(h.receiver("hook"))
	c.Rules.RelayLag, c.Rules.ProjectionLag = alarm.Duration(lag), alarm.Duration(lag)
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
	b.awaitProjected()
	b.stopProjector()
	anchor := time.Now().Add(30 * time.Minute).Truncate(time.Second)
	schedule := periodic.Schedule{Name: "nightly", Kind: "report.make", Every: time.Hour, Anchor: anchor}
	if _, err := periodic.Apply(t.Context(), b.db, []periodic.Schedule{schedule}, nil); err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "sms.send/later"), "")
	ledgertest.Append(t, b.db, ledgertest.Key(t, "sms.send/later"), ledger.EventSnoozed)
	ledgertest.ExecAsOwner(t, b.db, "update taskledger.timer set due_at = clock_timestamp() - interval '6 minutes'")
	b.exec(`
		update taskledger.schedule
		   set next_at = next_at - interval '3 hours', passed = 7, passed_at = clock_timestamp()`)
	time.Sleep(lag) // the events wait for a relay and a projector
	w := b.watcher(c)
	b.pass(w)
	items := reportedIn(t, h.got()[0])
	if want := []reported{
		{what: "dead", about: "mail.send", status: "new"},
		{what: "schedule_missed", about: "nightly", status: "new"},
		{what: "relay_lag", about: "", status: "new"},
		{what: "projection_lag", about: "", status: "new"},
		{what: "schedule_late", about: "nightly", status: "new"},
		{what: "timers_late", about: "", status: "new"},
		{what: "dead_over", about: "coupon.send", status: "new"},
		{what: "waiting_over", about: "mail.send", status: "new"},
	}; !slices.Equal(items, want) {
		t.Errorf("reported %v, want %v", items, want)
	}
	for _, i := range verified(t, h.got()[0]).Items[2:] {
		if i.Cure == "" || i.Since.IsZero() {
			t.Errorf("%s has the cure %q and began at %s", i.What, i.Cure, i.Since)
		}
	}
	b.pass(w)
	if n := len(h.got()); n != 1 {
		t.Fatalf("%d alarms while nothing changed", n)
	}
	b.startProjector()
	b.startRelay()
	ledgertest.ExecAsOwner(t, b.db, "update taskledger.timer set due_at = clock_timestamp() - interval '4 minutes'")
	ledgertest.Append(t, b.db, waits, ledger.EventStarted)
	ledgertest.Append(t, b.db, ledgertest.Key(t, "coupon.send/a-1"), ledger.EventReleased)
	b.exec("update taskledger.schedule set next_at = clock_timestamp() + interval '1 hour'")
	b.awaitProjected()
	for _, want := range []reported{
		{what: "dead_over", about: "coupon.send", status: "over"},
		{what: "projection_lag", about: "", status: "over"},
		{what: "relay_lag", about: "", status: "over"},
		{what: "schedule_late", about: "nightly", status: "over"},
		{what: "timers_late", about: "", status: "over"},
		{what: "waiting_over", about: "mail.send", status: "over"},
	} {
		// Results of expensive queries are cached for a while.
		b.await(want.what+" is reported as over", func() bool {
			b.pass(w)
			return slices.ContainsFunc(h.got(), func(r request) bool { return slices.Contains(reportedIn(t, r), want) })
		})
	}
}

// A condition that holds is reported again after a while. A task that dies again after a release is news.
func TestRemindersAndDyingAgain(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	c := b.config(h.receiver("hook"))
	c.Rules.Remind = alarm.Duration(time.Microsecond)
	c.Rules.Kinds = []alarm.KindRule{{Kind: "coupon.send", DeadOver: 1}}
	w := b.watcher(c)
	b.die("coupon.send", "a-", 2, "out of coupons")
	b.pass(w)
	b.pass(w)
	last := verified(t, h.got()[1])
	if len(last.Items) != 1 || last.Items[0].Status != alarm.StatusHolds {
		t.Fatalf("reported %+v", last.Items)
	}
	if since := verified(t, h.got()[0]).Items[1].Since; !last.Items[0].Since.Equal(since) {
		t.Errorf("since %s, and at first since %s", last.Items[0].Since, since)
	}
	ledgertest.Append(t, b.db, ledgertest.Key(t, "coupon.send/a-1"), ledger.EventReleased, ledger.EventBuried)
	b.awaitProjected()
	b.await("its new death", func() bool {
		b.pass(w)
		requests := h.got()
		i := verified(t, requests[len(requests)-1]).Items[0]
		return i.What == alarm.WhatDead && i.Tasks == 2
	})
}

// News is gathered before it is reported.
func TestGather(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	c := b.config(h.receiver("hook"))
	c.Rules.Gather = alarm.Duration(time.Hour)
	b.die("coupon.send", "a-", 2, "out of coupons")
	w := b.watcher(c)
	b.pass(w)
	b.pass(w)
	if n := len(b.alarms()); n != 0 {
		t.Errorf("%d alarms before news was gathered", n)
	}
}

func TestTest(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	r := h.receiver("hook")
	got, err := alarm.Test(t.Context(), b.db, r)
	if err != nil || got.State != ledger.StateSucceeded {
		t.Errorf("%+v, %v", got, err)
	}
	if item := verified(t, h.got()[0]).Items[0]; item.What != alarm.WhatTest {
		t.Errorf("reported %+v", item)
	}
	h.answer(404)
	if got, err = alarm.Test(t.Context(), b.db, r); err != nil || got.State != ledger.StateDead || got.Error == "" {
		t.Errorf("%+v, %v", got, err)
	}
	// A test delays no alarm.
	h.answer(200)
	c := b.config(r)
	c.Rules.Every = alarm.Duration(time.Hour)
	b.die("coupon.send", "a-", 1, "out of coupons")
	b.pass(b.watcher(c))
	if requests := h.got(); len(requests) != 3 || verified(t, requests[2]).Items[0].What != alarm.WhatDead {
		t.Errorf("%d requests", len(requests))
	}
}

// The alarm of any number of dead tasks and errors fits into the args of a task.
func TestMuchIsLeftOut(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	b.exec(`
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data)
		select v, 0, 1, case v when 1 then 'enqueued' else 'buried' end::taskledger.event_type,
		       'kind.' || k, repeat('i', 250) || e,
		       case v when 2 then json_build_object('error', json_build_object(
		         'message', repeat(E'\x01', 1000), 'fingerprint', left(md5(e::text), 16))) end
		  from generate_series(1, 60) k cross join generate_series(1, 20) e cross join generate_series(1, 2) v
		 order by k, e, v`)
	b.awaitProjected()
	b.pass(b.watcher(b.config(h.receiver("hook"))))
	m := verified(t, h.got()[0])
	if len(m.Items) != 50 || m.More != 10 || len(m.Items[0].Groups) != 10 || m.Items[0].Tasks != 20 {
		t.Errorf("%d items and %d more, %d groups", len(m.Items), m.More, len(m.Items[0].Groups))
	}
}

// An alarm whose deliveries lose their processes is buried, and the next alarm reports its news.
func TestAlarmThatKills(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	h.answer(500)
	c := b.config(h.receiver("hook"))
	c.SetRetry(ledger.RetryPolicy{Ladder: []time.Duration{time.Hour}})
	w := b.watcher(c)
	b.die("coupon.send", "a-", 2, "out of coupons")
	b.pass(w)
	first := b.alarms()[0].Task
	started := ledger.EventStarted
	ledgertest.Append(t, b.db, first, ledger.EventReleased, started, started, started, started, started)
	b.pass(w)
	task, err := ledger.Load(t.Context(), b.db, first)
	if err != nil || task.State != ledger.StateDead || task.Error != "5 processes were lost during its delivery" {
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

// A role that may only connect cannot silence a receiver by an advisory lock.
func TestForeignLocksSilenceNobody(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	h.answer(200)
	c := b.config(h.receiver("hook"))
	c.Rules.Kinds = []alarm.KindRule{{Kind: "coupon.send", DeadOver: 1}}
	ledgertest.HoldAdvisoryLocks(t, b.db, "taskledger.alarm/hook")
	b.die("coupon.send", "a-", 2, "out of coupons")
	b.pass(b.watcher(c))
	if n := len(h.got()); n != 1 {
		t.Errorf("delivered %d times, want once", n)
	}
}
