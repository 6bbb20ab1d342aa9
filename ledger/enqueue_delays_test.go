package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// dueOf returns when a task is due, and fails the test unless it is scheduled.
func dueOf(t *testing.T, db ledger.DB, k ledger.Key) time.Time {
	t.Helper()
	task := loaded(t, db, k)
	if task.State != ledger.StateScheduled {
		t.Fatalf("%+v", task)
	}
	return task.DueAt
}

// A run that waits behind a finished one, because no scheduler has begun it yet, is replaced by the next enqueue: the
// last run has the newest args.
func TestFollowBeforeTheWaitingRunBegins(t *testing.T) {
	t.Parallel()
	for _, ifExists := range []ledger.IfExists{ledger.IfExistsFollow, ledger.IfExistsReplace, ledger.IfExistsRerun} {
		t.Run(string(ifExists), func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "relay")
			follow := ledger.EnqueueOptions{IfExists: ledger.IfExistsFollow}
			ledgertest.Enqueue(t, pool, resync, "1")
			ledgertest.Append(t, pool, resync, ledger.EventStarted)
			for _, args := range []string{"2", "3"} {
				if _, err := enqueueAs(t, pool, resync, args, follow); err != nil {
					t.Fatal(err)
				}
			}
			ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
			e, err := enqueueAs(t, pool, resync, "4", ledger.EnqueueOptions{IfExists: ifExists})
			if err != nil || !e.New || e.State != ledger.StateAvailable {
				t.Fatalf("%+v, %v", e, err)
			}
			ledgertest.Append(t, pool, resync, ledger.EventStarted, ledger.EventSucceeded)
			const begin = "select taskledger_internal.begin_next('customer.resync', '17')::integer"
			if count(t, pool, begin) != 1 {
				t.Error("a run waits")
			}
			task := loaded(t, pool, resync)
			if task.Run != 2 || string(task.Args) != "4" || task.State != ledger.StateSucceeded {
				t.Errorf("%+v", task)
			}
			ledgertest.Check(t, pool)
		})
	}
}

// A debounced task is due some time after the last change, but no later than a bound after the first.
func TestDebounceWithABound(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	o := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, RunIn: time.Hour, DeferAtMost: 90 * time.Minute}
	first, err := enqueueAs(t, pool, resync, `1`, o)
	if err != nil {
		t.Fatal(err)
	}
	begun := loaded(t, pool, resync).EnqueuedAt
	for i := range 100 {
		if _, err := enqueueAs(t, pool, resync, fmt.Sprint(i), o); err != nil {
			t.Fatal(err)
		}
	}
	o.RunIn = 2 * time.Hour
	if _, err := enqueueAs(t, pool, resync, `2`, o); err != nil {
		t.Fatal(err)
	}
	if due := dueOf(t, pool, resync); !due.Equal(begun.Add(o.DeferAtMost)) {
		t.Errorf("due %s after version %d, want %s", due.Sub(begun), first.Version, o.DeferAtMost)
	}
	o.DeferAtMost = time.Microsecond
	answer, err := enqueueAs(t, pool, resync, `3`, o)
	if err != nil || answer.State != ledger.StateAvailable {
		t.Errorf("past the bound: %+v, %v", answer, err)
	}
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)

	// The next run has a bound of its own.
	o.RunIn, o.DeferAtMost = time.Hour, 30*time.Minute
	before := time.Now()
	if _, err := enqueueAs(t, pool, resync, `4`, o); err != nil {
		t.Fatal(err)
	}
	if due := dueOf(t, pool, resync); due.Before(before.Add(59 * time.Minute)) {
		t.Errorf("the first enqueue of a run has its own time: due in %s", due.Sub(before))
	}
	if _, err := enqueueAs(t, pool, resync, `5`, o); err != nil {
		t.Fatal(err)
	}
	if due := dueOf(t, pool, resync); due.After(before.Add(31 * time.Minute)) {
		t.Errorf("due in %s", due.Sub(before))
	}
	ledgertest.Check(t, pool)
}

// A throttled task runs once in a period: what is enqueued meanwhile is one run at its end, with the newest args.
func TestThrottle(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "worker", "operator")
	o := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, ThrottleFor: time.Hour}
	if answer, err := enqueueAs(t, pool, resync, `1`, o); err != nil || answer.State != ledger.StateAvailable {
		t.Fatalf("the first run: %+v, %v", answer, err)
	}
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	ended := loaded(t, pool, resync).UpdatedAt
	for i := range 3 {
		answer, err := enqueueAs(t, pool, resync, fmt.Sprint("1", i), o)
		if err != nil || !answer.New || answer.State != ledger.StateScheduled {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	if task := loaded(t, pool, resync); !task.DueAt.Equal(ended.Add(time.Hour)) || string(task.Args) != "12" ||
		task.Run != 2 {
		t.Errorf("%+v, want it due at %s", task, ended.Add(time.Hour))
	}
	o.RunIn = 2 * time.Hour
	if _, err := enqueueAs(t, pool, resync, `2`, o); err != nil {
		t.Fatal(err)
	}
	if due := dueOf(t, pool, resync); due.Before(ended.Add(2 * time.Hour)) {
		t.Errorf("a later time counts: %s", due.Sub(ended))
	}
	rerun := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun, ThrottleFor: time.Hour}
	if answer, err := enqueueAs(t, pool, resync, `2`, rerun); err != nil || answer.New {
		t.Errorf("a waiting run: %+v, %v", answer, err)
	}
	ledgertest.Append(t, pool, resync, ledger.EventReleased, ledger.EventSucceeded)
	rerun.ThrottleFor = time.Microsecond
	if answer, err := enqueueAs(t, pool, resync, `3`, rerun); err != nil || answer.State != ledger.StateAvailable {
		t.Errorf("after the period: %+v, %v", answer, err)
	}
	ledgertest.Check(t, pool)
}

// Callers that enqueue a throttled task at the same time get one run after the period.
func TestThrottleRace(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ledgertest.Enqueue(t, pool, resync, "0")
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	ended := loaded(t, pool, resync).UpdatedAt
	o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace, ThrottleFor: time.Hour}
	atOnce(t, 8, func(ctx context.Context) error {
		return second(ledger.Enqueue(ctx, pool, resync, json.RawMessage(`1`), o))
	})
	if task := loaded(t, pool, resync); task.Run != 2 || !task.DueAt.Equal(ended.Add(time.Hour)) {
		t.Errorf("%+v", task)
	}
	ledgertest.Check(t, pool)
}

// The SQL functions have the same delays, and the same checks.
func TestDelaysInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ledgertest.Enqueue(t, pool, resync, "0")
	ledgertest.Append(t, pool, resync, ledger.EventSucceeded)
	ended := loaded(t, pool, resync).UpdatedAt
	for i, call := range []string{
		"enqueue('customer.resync', '17', '1', if_exists => 'rerun', throttle_for => '1 hour')",
		`enqueue_many('[{"kind":"customer.resync","biz_id":"17","args":2,"if_exists":"replace",
		                 "throttle_for":"1 hour"}]')`,
	} {
		if state, err := queryText(t.Context(), pool, "select state::text from taskledger."+call); err != nil ||
			state != "scheduled" || !dueOf(t, pool, resync).Equal(ended.Add(time.Hour)) {
			t.Errorf("%d: %s, %v", i, state, err)
		}
	}
	const replace = `select state::text from taskledger.enqueue(
		'customer.resync', '17', '3', run_in => '9 hours', if_exists => 'replace', defer_at_most => '1 microsecond')`
	if state, err := queryText(t.Context(), pool, replace); err != nil || state != "available" {
		t.Errorf("%s, %v", state, err)
	}
	for _, call := range []string{
		"enqueue('a', '1', defer_at_most => '1 s')", "enqueue('a', '1', if_exists => 'ignore', throttle_for => '1 s')",
		"enqueue('a', '1', if_exists => 'rerun', defer_at_most => '1 s')",
		"enqueue('a', '1', if_exists => 'rerun', throttle_for => '-1 s')",
		"enqueue('a', '1', if_exists => 'replace', defer_at_most => '300 years')",
		`enqueue_many('[{"kind":"a","biz_id":"1","if_exists":"rerun","throttle_for":"soon"}]')`,
		`enqueue_many('[{"kind":"a","biz_id":"1","throttle_for":"1 s"}]')`,
	} {
		_, err := pool.Exec(t.Context(), "select taskledger."+call)
		if err == nil || !strings.Contains(err.Error(), "taskledger: invalid") {
			t.Errorf("%s: %v", call, err)
		}
	}
	for name, o := range map[string]ledger.EnqueueOptions{
		"defer":    {DeferAtMost: 1},
		"throttle": {IfExists: ledger.IfExistsIgnore, ThrottleFor: 1},
		"rerun":    {IfExists: ledger.IfExistsRerun, DeferAtMost: 1},
		"negative": {IfExists: ledger.IfExistsRerun, ThrottleFor: -1},
		"before":   {IfExists: ledger.IfExistsReplace, DeferAtMost: -1},
	} {
		var invalid *ledger.InvalidError
		if _, err := enqueueAs(t, pool, resync, `1`, o); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ledgertest.Check(t, pool)
}
