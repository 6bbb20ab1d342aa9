package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

const gated = ledger.Kind("test.gated")

// limitConcurrency sets the concurrency limit of kind gated.
func limitConcurrency(t testing.TB, db ledger.DB, n int) {
	t.Helper()
	limit := ledger.StartLimit{Name: string(gated), Kinds: map[ledger.Kind]int{gated: 1}, MaxRunning: &n}
	if err := ledger.SetStartLimit(t.Context(), db, limit, "alice"); err != nil {
		t.Fatal(err)
	}
}

func gatedKey(i int) ledger.Key {
	return ledger.Key{Kind: gated, BizID: ledger.BizID(fmt.Sprint("g-", i))}
}

// gate returns a database with a concurrency limit and n waiting tasks.
func gate(t testing.TB, limit, n int) *pgxpool.Pool {
	t.Helper()
	db := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.ExecAsOwner(t, db, `create or replace function taskledger_internal.permit_lasts() returns interval
		language sql immutable parallel safe return interval '1 hour'`) // the machine may stand still for 10 s
	limitConcurrency(t, db, limit)
	for i := range n {
		ledgertest.Enqueue(t, db, gatedKey(i), "")
	}
	return db
}

// appendGated appends an event after a version of a gated task.
func appendGated(t testing.TB, db ledger.DB, i int, after ledger.Version, e ledger.EventType) error {
	t.Helper()
	r := ledger.AppendRequest{Key: gatedKey(i), Expected: after, Type: e, Actor: "w"}
	_, err := ledger.Append(t.Context(), db, r)
	return err
}

// mustAppend is appendGated of an event that must be appended.
func mustAppend(t testing.TB, db ledger.DB, i int, after ledger.Version, e ledger.EventType) {
	t.Helper()
	if err := appendGated(t, db, i, after, e); err != nil {
		t.Fatal(err)
	}
}

// mustBeFull fails the test unless the limit refuses the start of a task.
func mustBeFull(t testing.TB, db ledger.DB, i int, after ledger.Version) {
	t.Helper()
	if err := appendGated(t, db, i, after, ledger.EventStarted); !errors.Is(err, ledger.ErrStartLimit) {
		t.Fatalf("start of task %d: %v, want ErrStartLimit", i, err)
	}
}

func concurrencyOf(t testing.TB, db ledger.DB) ledger.StartLimitStatus {
	t.Helper()
	all, err := ledger.ReadStartLimits(t.Context(), db, "", "", 10)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v, want one limit", all, err)
	}
	return all[0]
}

// Every way in which an attempt ends gives its permit back, and a take-over keeps it.
func TestPermitOfAnAttempt(t *testing.T) {
	t.Parallel()
	db := gate(t, 1, 3)
	version := ledger.Version(1)
	for _, end := range []ledger.EventType{
		ledger.EventInterrupted, ledger.EventInterrupted, ledger.EventDiscarded,
	} {
		mustAppend(t, db, 0, version, ledger.EventStarted)
		mustBeFull(t, db, 1, 1)
		mustAppend(t, db, 0, version+1, ledger.EventProgressed)
		mustBeFull(t, db, 1, 1)
		mustAppend(t, db, 0, version+2, ledger.EventStarted) // by another worker
		mustBeFull(t, db, 1, 1)
		mustAppend(t, db, 0, version+3, end)
		version += 4
	}
	mustAppend(t, db, 1, 1, ledger.EventProgressed) // begins an attempt too
	mustBeFull(t, db, 2, 1)
	mustAppend(t, db, 1, 2, ledger.EventSucceeded)
	mustAppend(t, db, 2, 1, ledger.EventStarted)
	if got := concurrencyOf(t, db); got.Running != 1 || *got.MaxRunning != 1 {
		t.Errorf("%+v, want 1 of 1", got)
	}
}

// A group of starts takes the free permits, and the others are refused.
func TestPermitsOfAGroup(t *testing.T) {
	t.Parallel()
	db := gate(t, 3, 8)
	var requests []ledger.AppendRequest
	for i := range 8 {
		requests = append(requests, ledger.AppendRequest{
			Key: gatedKey(i), Expected: 1, Type: ledger.EventStarted, Actor: "w",
		})
	}
	started := 0
	for i, r := range ledger.AppendEach(t.Context(), db, requests) {
		switch {
		case r.Err == nil:
			started++
		case !errors.Is(r.Err, ledger.ErrStartLimit):
			t.Errorf("start of task %d: %v, want ErrStartLimit", i, r.Err)
		}
	}
	if started != 3 {
		t.Errorf("%d tasks have started, want 3", started)
	}
}

// Limits are changed while tasks run.
func TestConcurrencyLimitChanges(t *testing.T) {
	t.Parallel()
	db := gate(t, 6, 20)
	for i := range 6 {
		mustAppend(t, db, i, 1, ledger.EventStarted)
	}
	limitConcurrency(t, db, 2)
	for i := range 4 {
		mustBeFull(t, db, 10, 1)
		mustAppend(t, db, i, 2, ledger.EventSucceeded)
	}
	mustBeFull(t, db, 10, 1) // two run, in whichever slots
	mustAppend(t, db, 4, 2, ledger.EventSucceeded)
	mustAppend(t, db, 10, 1, ledger.EventStarted)
	mustBeFull(t, db, 11, 1)
	limitConcurrency(t, db, 4)
	mustAppend(t, db, 11, 1, ledger.EventStarted)
	mustAppend(t, db, 12, 1, ledger.EventStarted)
	mustBeFull(t, db, 13, 1)
	limitConcurrency(t, db, 0)
	for _, i := range []int{5, 10, 11, 12} {
		mustBeFull(t, db, 13, 1)
		mustAppend(t, db, i, 2, ledger.EventSucceeded)
	}
	mustBeFull(t, db, 13, 1)
	if ok, err := ledger.RemoveStartLimit(t.Context(), db, string(gated)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for i := range 5 {
		mustAppend(t, db, 13+i, 1, ledger.EventStarted)
	}
}

// A limit is removed at any moment while it is set: before the removal, it is locked as by another change.
func TestSetALimitThatIsBeingRemoved(t *testing.T) {
	t.Parallel()
	db := gate(t, 1, 2)
	owner := ledgertest.As(t, db, ledgertest.Owner)
	for _, isLocked := range []bool{false, true} {
		removal, err := owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		remove := func() {
			if ok, err := ledger.RemoveStartLimit(t.Context(), removal, string(gated)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if isLocked {
			_, err := removal.Exec(t.Context(), "select from taskledger.start_limit for no key update")
			if err != nil {
				t.Fatal(err)
			}
		} else {
			remove()
		}
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		pid := ledgertest.BackendPID(t, conn)
		limit := ledger.StartLimit{Name: string(gated), Kinds: map[ledger.Kind]int{gated: 1}, MaxRunning: new(1)}
		set := make(chan error, 1)
		go func() { set <- ledger.SetStartLimit(t.Context(), conn, limit, "") }()
		ledgertest.AwaitBlocked(t, db, pid)
		if isLocked {
			remove()
		}
		if err := removal.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-set; err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, db, 0, 1, ledger.EventStarted)
	mustBeFull(t, db, 1, 1)
}

// Old rows of slots are removed, and the limit holds.
func TestRemoveOldPermits(t *testing.T) {
	t.Parallel()
	db := gate(t, 5, 40)
	for i := range 30 {
		mustAppend(t, db, i, 1, ledger.EventStarted)
		mustAppend(t, db, i, 2, ledger.EventSucceeded)
	}
	for i := 30; i < 35; i++ {
		mustAppend(t, db, i, 1, ledger.EventStarted)
	}
	if n := count(t, db, "select count(*) from taskledger.permit"); n != 5 {
		t.Errorf("%d rows of 5 slots after 35 starts", n)
	}
	limitConcurrency(t, db, 3)
	const removeAll = "select taskledger_internal.remove_permits(4)"
	for count(t, db, removeAll) > 0 {
	}
	if n := count(t, db, "select count(*) from taskledger.permit"); n != 5 {
		t.Errorf("%d rows of 5 slots are left", n)
	}
	mustAppend(t, db, 30, 2, ledger.EventSucceeded)
	mustBeFull(t, db, 35, 1)
	for i := 31; i < 35; i++ {
		mustAppend(t, db, i, 2, ledger.EventSucceeded)
	}
	for count(t, db, removeAll) > 0 {
	}
	if n := count(t, db, "select count(*) from taskledger.permit"); n != 3 {
		t.Errorf("%d rows of 3 slots are left", n)
	}
	for i := 35; i < 38; i++ {
		mustAppend(t, db, i, 1, ledger.EventStarted)
	}
	mustBeFull(t, db, 38, 1)
}

// A role that may only work cannot start one task too many, by whatever statement.
func TestConcurrencyLimitOfAnInsert(t *testing.T) {
	t.Parallel()
	owner := gate(t, 1, 3)
	db := ledgertest.As(t, owner, "worker")
	const start = `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor)
		select 2, 1, e.shard, 'started', e.kind, e.biz_id, 'w' from taskledger.event e where e.biz_id = any ($1)`
	if _, err := db.Exec(t.Context(), start, []string{"g-0"}); err != nil {
		t.Fatal(err)
	}
	for _, ids := range [][]string{{"g-1"}, {"g-1", "g-2"}} {
		if _, err := db.Exec(t.Context(), start, ids); !pgerr.Is(err, pgerr.StartLimit) {
			t.Errorf("insert of %v: %v, want TL008", ids, err)
		}
	}
	for _, statement := range []string{
		"insert into taskledger.permit (name, value, slot, n) values ('test.gated', '', 2, 0)",
		"update taskledger.start_limit set max_running = 5",
		"delete from taskledger.permit",
		"alter table taskledger.event disable trigger event_permits",
		"select taskledger_internal.remove_permits(1)",
	} {
		if _, err := db.Exec(t.Context(), statement); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s: %v, want insufficient_privilege", statement, err)
		}
	}
	if _, err := db.Exec(t.Context(), "set session_replication_role = 'replica'"); err == nil {
		t.Error("a worker may disable triggers")
	}
}

func TestInvalidStartLimit(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "operator")
	const name = "partner-x"
	one := map[ledger.Kind]int{gated: 1}
	minute := func(starts, burst int) *ledger.StartRate {
		return &ledger.StartRate{Starts: starts, Period: time.Minute, Burst: burst}
	}
	for _, c := range []struct {
		limit ledger.StartLimit
		want  string
	}{
		{
			limit: ledger.StartLimit{Name: name, Kinds: one, MaxRunning: new(-1)},
			want:  `set limit: invalid max_running "-1": must be between 0 and 10000`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: one, MaxRunning: new(10_001)},
			want:  `set limit: invalid max_running "10001": must be between 0 and 10000`,
		},
		{
			limit: ledger.StartLimit{Name: "taskledger.alarm", Kinds: one, MaxRunning: new(1)},
			want:  `set limit: invalid name of a limit "taskledger.alarm": must not be one of taskledger itself`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: map[ledger.Kind]int{"taskledger.alarm": 1}, MaxRunning: new(1)},
			want:  `set limit: invalid kind "taskledger.alarm": must not be one of taskledger itself`,
		},
		{
			limit: ledger.StartLimit{Name: "partner x", Kinds: one, MaxRunning: new(1)},
			want:  `set limit: invalid name of a limit "partner x": must have the form of a kind`,
		},
		{
			limit: ledger.StartLimit{Name: name, MaxRunning: new(1)},
			want: `set limit: invalid kinds: must contain the kinds that the limit counts and their weights, ` +
				`as in {"partner-x": 1}`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: one},
			want:  `set limit: invalid limit "partner-x": must have a maximum of running tasks or a rate`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: one, MaxRunning: new(1), Per: "tenant"},
			want:  `set limit: invalid per "tenant": must be partition or order_key`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: one, Rate: minute(0, 0)},
			want:  `set limit: invalid rate "0": must be between 1 and 100000000; MaxRunning 0 lets no task start`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: one, Rate: &ledger.StartRate{Starts: 1, Period: time.Hour * 2}},
			want:  `set limit: invalid period "2h0m0s": must be a second, a minute, an hour or a day`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: one, Rate: minute(10, 3)},
			want:  `set limit: invalid burst "3": must be between 1 and 10000, and divide the rate of 10`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: one, Rate: minute(20_002, 10_001)},
			want:  `set limit: invalid burst "10001": must be between 1 and 10000, and divide the rate of 20002`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: map[ledger.Kind]int{gated: 6}, Rate: minute(10, 5)},
			want:  `set limit: invalid weight of test.gated "6": must be between 1 and the rate's burst of 5`,
		},
		{
			limit: ledger.StartLimit{Name: name, Kinds: map[ledger.Kind]int{gated: 2}, MaxRunning: new(5)},
			want:  `set limit: invalid weight of test.gated "2": needs a rate`,
		},
	} {
		err := ledger.SetStartLimit(t.Context(), db, c.limit, "")
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%+v: %v, want an InvalidError", c.limit, err)
			continue
		}
		if diff := difference.Of(c.want, err.Error()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.limit, diff)
		}
	}
}

// A kind's first limit counts the tasks that run when it is set, if they are on the list of unfinished tasks.
func TestFirstConcurrencyLimitWhileTasksRun(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for i := range 6 {
		ledgertest.Enqueue(t, db, gatedKey(i), "")
	}
	for i := range 3 {
		mustAppend(t, db, i, 1, ledger.EventStarted)
	}
	ledgertest.ExecAsOwner(t, db, `
		create or replace view taskledger_internal.lingering_tasks as
		select e.recorded_at as enqueued_at, e.kind, e.biz_id, e.shard, taskledger.state_after(e.type) as state,
		       e.version, e.recorded_at as updated_at, e.position, e.priority,
		       coalesce(e.partition, '') as partition
		  from taskledger.event e
		 where e.version = 1`)
	limitConcurrency(t, db, 2)
	mustBeFull(t, db, 4, 1)
	mustAppend(t, db, 0, 2, ledger.EventSucceeded)
	mustBeFull(t, db, 4, 1)
	mustAppend(t, db, 1, 2, ledger.EventSucceeded)
	mustAppend(t, db, 4, 1, ledger.EventStarted)
	mustBeFull(t, db, 5, 1)
}

// crowd starts and ends tasks on many connections, and returns the most that ran at a time.
func crowd(t *testing.T, db *pgxpool.Pool, programs, tasks int, change func(i int)) int64 {
	t.Helper()
	var running, most, next atomic.Int64
	var done sync.WaitGroup
	for range programs {
		done.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= tasks || t.Context().Err() != nil {
					return
				}
				change(i)
				for {
					err := appendGated(t, db, i, 1, ledger.EventStarted)
					if err == nil {
						break
					}
					if !errors.Is(err, ledger.ErrStartLimit) {
						t.Error(err)
						return
					}
				}
				now := running.Add(1)
				for {
					before := most.Load()
					if now <= before || most.CompareAndSwap(before, now) {
						break
					}
				}
				time.Sleep(time.Millisecond) // the work
				running.Add(-1)              // before its end can be seen
				if err := appendGated(t, db, i, 2, ledger.EventSucceeded); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	return most.Load()
}

// removing removes old permits until the test ends.
func removing(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, err := db.Exec(ctx, "select taskledger_internal.remove_permits(100)")
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// No two programs exceed the limit together, while old permits are removed and the limit changes between 2 and 4.
func TestConcurrencyLimitInACrowd(t *testing.T) {
	t.Parallel()
	const tasks = 300
	db := gate(t, 2, tasks)
	removing(t, db)
	most := crowd(t, db, 8, tasks, func(i int) {
		if i%20 == 0 {
			limitConcurrency(t, db, 2+i/20%3)
		}
	})
	if most > 4 {
		t.Errorf("%d tasks ran at a time, want at most 4", most)
	}
	if n := concurrencyOf(t, db).Running; n != 0 {
		t.Errorf("%d permits are in use after the end", n)
	}
}

// Mutants of the trigger exceed the limit: one that counts the permits instead of taking a slot.
func TestConcurrencyLimitNeedsPermits(t *testing.T) {
	t.Parallel()
	const tasks = 300
	db := gate(t, 2, tasks)
	ledgertest.ExecAsOwner(t, db, `
		create or replace function taskledger_internal.take_permits() returns trigger
		language plpgsql volatile security definer as $$
		begin
		  if (select count(*) >= 2
		        from taskledger.event e
		       where e.type = 'started' and e.biz_id <> new.biz_id and not exists (
		         select from taskledger.event f
		          where f.kind = e.kind and f.biz_id = e.biz_id and f.version = e.version + 1)) then
		    raise exception 'full' using errcode = 'TL008';
		  end if;
		  insert into taskledger.permit (name, value, slot, n, kind, biz_id, version, attempt)
		  values (new.kind, '', 100 + substr(new.biz_id, 3)::integer, 0, new.kind, new.biz_id, new.version,
		          new.attempt);
		  return null;
		end
		$$`)
	if most := crowd(t, db, 8, tasks, func(int) {}); most <= 2 {
		t.Errorf("at most %d tasks ran at a time: this test would not find that a limit is exceeded", most)
	}
}
