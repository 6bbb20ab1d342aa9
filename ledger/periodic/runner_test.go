package periodic_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// The meta of a firing's task contains its schedule, its firing and its wall time.
func TestFiring(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("sales"))
	before := b.load("sales")
	wait := time.Until(before.NextAt)
	if wait < 20*time.Minute || wait > 31*time.Minute || before.NextAt.Second() != 0 {
		t.Fatalf("next at %s", before.NextAt)
	}
	r := b.runner()
	b.pass(r, 0)
	if fired := b.fired("sales"); len(fired) != 0 {
		t.Fatalf("fired too early: %v", fired)
	}
	b.pass(r, time.Hour)
	key := ledger.Key{Kind: "report.make", BizID: ledger.BizID("sales@" + before.NextAt.Format(time.RFC3339))}
	events, err := ledger.History(t.Context(), b.db, key)
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"schedule":{"name":"sales","firing":"%s","zone":"Europe/Berlin","local":"%s"}}`,
		before.NextAt.Format(time.RFC3339), before.NextAt.In(berlin).Format(time.RFC3339))
	e := events[0]
	if string(e.Data) != `{"of": "sales"}` || e.Actor != "schedule/sales" || e.Type != ledger.EventEnqueued {
		t.Errorf("enqueued %+v", e)
	}
	if string(e.Meta) != want {
		t.Errorf("meta %s, want %s", e.Meta, want)
	}
	after := b.load("sales")
	if !after.LastAt.Equal(before.NextAt) || !after.NextAt.Equal(before.NextAt.Add(time.Hour)) {
		t.Errorf("after it: %+v", after)
	}
	if *after.LastTask != key || after.Passed != 0 {
		t.Errorf("after it: %+v", after)
	}
}

// A runner fires on time, also schedules that are applied while it sleeps.
func TestRunnerRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop := b.run(b.runner())
	b.apply(periodic.Schedule{Name: "tick", Kind: "tick", Every: time.Second})
	b.await("three firings", func() bool { return len(b.fired("tick")) >= 3 })
	stop()
	for _, id := range b.fired("tick") {
		at := one[time.Time](b, "select recorded_at from taskledger.event where biz_id = $1", id)
		if at.Before(b.firing(id)) {
			t.Errorf("%s fired before it was due, at %s", id, at)
		}
	}
}

// Runners that race fire each firing once.
func TestRunnersRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := func(s periodic.Schedule) periodic.Schedule {
		s.Missed, s.MissedLimit = periodic.MissedAll, 1000
		return s
	}
	schedules := []periodic.Schedule{all(periodic.Schedule{Name: "one", Kind: "race", Every: 10 * time.Second})}
	for i := range 10 {
		name := fmt.Sprintf("of-ten-%d", i)
		schedules = append(schedules, all(periodic.Schedule{Name: name, Kind: "race", Every: 10 * time.Second}))
	}
	b.apply(schedules...)
	starts := make(map[string]time.Time)
	for _, s := range schedules {
		starts[s.Name] = b.load(s.Name).NextAt
	}
	var racing sync.WaitGroup
	for range 3 {
		r := b.runner()
		racing.Go(func() {
			for clock := time.Duration(0); clock <= 1000*time.Second; clock += 10 * time.Second {
				b.pass(r, clock)
			}
		})
	}
	racing.Wait()
	for _, s := range schedules {
		// By its own next firing: another one may be due while the last pass goes through the schedules.
		want := int(b.load(s.Name).NextAt.Sub(starts[s.Name]) / (10 * time.Second))
		if want < 100 {
			t.Fatalf("%d firings of %s were due", want, s.Name)
		}
		if fired := b.fired(s.Name); len(fired) != want {
			t.Errorf("%s fired %d times, want %d", s.Name, len(fired), want)
		}
		if passed := b.passed(s.Name); len(passed) != 0 {
			t.Errorf("%s passed over %v", s.Name, passed)
		}
	}
	ledgertest.Check(t, b.db)
}

// No firing is repeated if the clock or the position of a schedule is set back (by a failover, a restore, an
// operator).
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("sales"))
	r := b.runner()
	for _, hour := range []time.Duration{1, 2, 3, -1, 0, 1, 2, 3} {
		b.pass(r, hour*time.Hour)
	}
	fired := b.fired("sales")
	if len(fired) != 3 {
		t.Fatalf("fired %v, want three firings", fired)
	}
	b.due("sales", "3 hours")
	for clock := range 4 {
		b.pass(r, time.Duration(clock)*time.Hour)
	}
	if diff := difference.Of(fired, b.fired("sales")); diff != "" {
		t.Errorf("fired again:\n%s", diff)
	}
	for _, id := range fired {
		if n := one[int](b, "select count(*)::integer from taskledger.event where biz_id = $1", id); n != 1 {
			t.Errorf("%s has %d events", id, n)
		}
	}
	if err := periodic.Remove(t.Context(), b.db, "sales", "", ""); err != nil {
		t.Fatal(err)
	}
	b.apply(hourly("sales"))
	b.pass(r, time.Hour)
	if diff := difference.Of(fired, b.fired("sales")); diff != "" {
		t.Errorf("created again, it fired again:\n%s", diff)
	}
}

// Runners on clocks that are minutes apart fire each firing once, and in order.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(periodic.Schedule{Name: "minutely", Kind: "tick", Every: time.Minute, Missed: periodic.MissedAll})
	ahead, behind := b.runner(), b.runner()
	for minute := range 20 {
		clock := time.Duration(minute) * time.Minute
		b.pass(ahead, clock+7*time.Minute)
		b.pass(behind, clock-5*time.Minute)
	}
	fired := b.fired("minutely")
	if len(fired) < 26 || len(fired) > 27 || len(b.passed("minutely")) != 0 {
		t.Fatalf("fired %d: %v", len(fired), fired)
	}
	for i, id := range fired[1:] {
		if gap := b.firing(id).Sub(b.firing(fired[i])); gap != time.Minute {
			t.Errorf("between %s and %s: %s", fired[i], id, gap)
		}
	}
}

// Only the runner reads this machine's clock, to sleep and to retry: the database's clock decides what is due.
func TestNoOtherClock(t *testing.T) {
	t.Parallel()
	clock := regexp.MustCompile(`time\.(Now|Since|Until)\(`)
	for _, file := range []string{
		"apply.go", "change.go", "cron.go", "difference.go", "fire.go",
		"operate.go", "plan.go", "schedule.go", "status.go",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := clock.Find(text); found != nil {
			t.Errorf("%s: %s", file, found)
		}
	}
}

// After a stop of all runners, each policy fires its share, and the firings that are passed over are recorded.
func TestMissed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		missed periodic.Missed
		limit  int
		fired  int
		passed int64
	}{
		{missed: periodic.MissedOne, fired: 1, passed: 9},
		{missed: periodic.MissedSkip, fired: 0, passed: 10},
		{missed: periodic.MissedAll, fired: 10, passed: 0},
		{missed: periodic.MissedAll, limit: 4, fired: 4, passed: 6},
	} {
		t.Run(fmt.Sprint(test.missed, test.limit), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := periodic.Schedule{
				Name: "s", Kind: "tick", Every: time.Hour, Missed: test.missed, MissedLimit: test.limit,
				// The newest firing is old.
				Anchor: time.Now().Add(-20*time.Hour - 30*time.Minute).Truncate(time.Second),
			}
			b.apply(s)
			b.due("s", "10 hours")
			first := b.load("s").NextAt
			b.pass(b.runner(), 0)
			b.pass(b.runner(), 0)
			fired, passed := b.fired("s"), b.passed("s")
			if len(fired) != test.fired || b.load("s").Passed != test.passed {
				t.Errorf("fired %v, passed %d", fired, b.load("s").Passed)
			}
			if next := b.load("s").NextAt; !next.Equal(first.Add(10 * time.Hour)) {
				t.Errorf("next at %s", next)
			}
			if test.passed == 0 {
				if len(passed) != 0 {
					t.Errorf("passed over %v", passed)
				}
				return
			}
			if len(passed) != 1 {
				t.Fatalf("passed over %v, want one record", passed)
			}
			want := map[string]any{
				"reason": "missed", "firings": float64(test.passed), "from": first.Format(time.RFC3339),
				"to": first.Add(time.Duration(test.passed-1) * time.Hour).Format(time.RFC3339),
			}
			got := b.discardedData(ledger.Key{Kind: "tick", BizID: ledger.BizID(passed[0])})
			if diff := difference.Of(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Firings are passed over one by one while the task of the previous firing is unfinished.
func TestOverlapSkip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := hourly("sales")
	s.Overlap = periodic.OverlapSkip
	b.apply(s)
	r := b.runner()
	for hour := 1; hour <= 3; hour++ {
		b.pass(r, time.Duration(hour)*time.Hour)
	}
	fired, passed := b.fired("sales"), b.passed("sales")
	if len(fired) != 1 || len(passed) != 2 {
		t.Fatalf("fired %v, passed over %v", fired, passed)
	}
	key := ledger.Key{Kind: "report.make", BizID: ledger.BizID(fired[0])}
	want := map[string]any{"reason": "overlap", "unfinished": key.String()}
	newest := ledger.Key{Kind: "report.make", BizID: ledger.BizID(passed[1])}
	if diff := difference.Of(want, b.discardedData(newest)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	ledgertest.Append(t, b.db, key, ledger.EventStarted, ledger.EventSucceeded)
	b.pass(r, 4*time.Hour)
	if fired := b.fired("sales"); len(fired) != 2 {
		t.Errorf("fired %v after the first had finished", fired)
	}
	// An operator can release the task of a firing that was passed over.
	ledgertest.Append(t, b.db, ledger.Key{Kind: "report.make", BizID: ledger.BizID(passed[0])}, ledger.EventReleased)
	ledgertest.Check(t, b.db)
}

// The first firing of a fixed delay is due at once, and each other so long after the end of the previous task.
func TestFixedDelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(periodic.Schedule{Name: "sync", Kind: "sync", FixedDelay: time.Hour})
	r := b.runner()
	b.pass(r, 0)
	for _, clock := range []time.Duration{0, 5 * time.Hour} {
		b.pass(r, clock)
		if fired := b.fired("sync"); len(fired) != 1 {
			t.Fatalf("fired %v while the first is unfinished", fired)
		}
	}
	first := *b.load("sync").LastTask
	dead := ledgertest.Append(t, b.db, first, ledger.EventStarted, ledger.EventBuried) // a finished state too
	end := dead.UpdatedAt
	b.pass(r, 0)
	if next := b.load("sync").NextAt; !next.Equal(end.Add(time.Hour)) {
		t.Errorf("next at %s, want an hour after %s", next, end)
	}
	b.pass(r, time.Hour)
	fired := b.fired("sync")
	if len(fired) != 2 || !b.firing(fired[1]).Equal(end.Add(time.Hour)) {
		t.Errorf("fired %v", fired)
	}
	if b.load("sync").Passed != 0 {
		t.Errorf("passed over %v", b.passed("sync"))
	}
}

// A schedule that cannot fire does not block others.
func TestBrokenSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("zone"), hourly("args"), hourly("good"))
	b.exec("update taskledger.schedule set zone = 'Atlantis/Capital' where name = 'zone'")
	ledgertest.ExecAsOwner(t, b.db, "update taskledger.setting set value = '4096' where name = 'max_args_bytes'")
	b.exec("update taskledger.schedule set args = to_json(repeat('x', 5000)) where name = 'args'")
	for _, name := range []string{"zone", "args", "good"} {
		b.due(name, "1 hour")
	}
	r := b.runner()
	b.pass(r, 0)
	b.pass(r, 0)
	if fired := b.fired("good"); len(fired) != 1 {
		t.Errorf("the valid schedule fired %v", fired)
	}
	if fired := slices.Concat(b.fired("zone"), b.fired("args")); len(fired) != 0 {
		t.Errorf("fired %v", fired)
	}
	ledgertest.ExecAsOwner(t, b.db, "update taskledger.setting set value = '8192' where name = 'max_args_bytes'")
	b.pass(b.runner(), 0) // another runner, or this one after its pause
	if fired := b.fired("args"); len(fired) != 1 {
		t.Errorf("after its args were allowed, it fired %v", fired)
	}
}

// No delay of a schedule is so long that the runner cannot compute its next firing, which would block all others.
func TestEndlessDelayBlocksNoSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("good"))
	operator := ledgertest.As(t, b.db, "operator")
	const insert = `
		insert into taskledger.schedule (name, kind, fixed_delay_ms, missed, missed_limit, overlap, actor, last_at)
		values ($1, 'a', $2, '', 0, '', 'op', '9998-12-30')`
	if _, err := operator.Exec(t.Context(), insert, "endless", int64(math.MaxInt64)); !pgerr.Is(err, "23514") {
		t.Errorf("%v, want a check violation", err)
	}
	longest := periodic.MaxEvery.Milliseconds()
	if _, err := operator.Exec(t.Context(), insert, "long", longest); err != nil {
		t.Error(err)
	}
	if _, err := operator.Exec(t.Context(), insert, "longer", longest+1); !pgerr.Is(err, "23514") {
		t.Errorf("%v, want a check violation", err)
	}
	b.due("good", "1 hour")
	b.pass(b.runner(), 0)
	if fired := b.fired("good"); len(fired) != 1 {
		t.Errorf("the other schedule fired %v", fired)
	}
}

// Every query mode works: connections through a pooler use one of the simpler ones.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			plantest.Settings(t, b.db.Config().ConnString())
			config := b.db.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			db, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			b.db = db
			s := hourly("cron")
			s.Overlap = periodic.OverlapSkip
			anchor := time.Now().Add(-90 * time.Minute).Truncate(time.Second)
			b.apply(s, periodic.Schedule{Name: "every", Kind: "k", Every: time.Hour, Anchor: anchor},
				periodic.Schedule{Name: "delayed", Kind: "k", FixedDelay: time.Hour})
			r := b.runner()
			for hour := range 3 {
				b.pass(r, time.Duration(hour)*time.Hour)
			}
			cron, every, delayed, passed := b.fired("cron"), b.fired("every"), b.fired("delayed"), b.passed("cron")
			if len(cron) != 1 || len(passed) != 1 || len(every) != 2 || len(delayed) != 1 {
				t.Errorf("fired %v %v %v, passed over %v", cron, every, delayed, passed)
			}
			if err := errors.Join(
				periodic.Pause(t.Context(), db, "cron", "a", ""),
				periodic.Resume(t.Context(), db, "cron", "a", ""),
				periodic.Remove(t.Context(), db, "cron", "", ""),
			); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "relay", "operator"), nil)
}

// A firing whose task another program has enqueued in advance is passed over, and not taken for the schedule's own.
func TestFiringThatAnotherHasTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("sales"))
	before := b.load("sales")
	key := ledger.Key{Kind: before.Schedule.Kind, BizID: ledger.BizID("sales@" + before.NextAt.Format(time.RFC3339))}
	ledgertest.Enqueue(t, b.db, key, `{"forged": true}`)
	b.pass(b.runner(), time.Hour)
	after := b.load("sales")
	if after.Passed != 1 || !after.LastAt.IsZero() || after.LastTask != nil {
		t.Errorf(
			"after the firing: passed %d, last at %s, %v; want 1 and none",
			after.Passed,
			after.LastAt,
			after.LastTask,
		)
	}
	if !after.NextAt.Equal(before.NextAt.Add(time.Hour)) {
		t.Errorf("next at %s", after.NextAt)
	}
	// Its actor cannot be claimed.
	key.BizID += "+1"
	var invalid *ledger.InvalidError
	o := &ledger.EnqueueOptions{Actor: "schedule/sales"}
	if _, err := ledger.Enqueue(t.Context(), b.db, key, nil, o); !errors.As(err, &invalid) {
		t.Errorf("with the actor of a schedule: %v", err)
	}
}

// A firing that a producer has run again is still the schedule's own.
func TestFiringThatRanAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(hourly("sales"))
	first := b.load("sales").NextAt
	b.pass(b.runner(), time.Hour)
	key := *b.load("sales").LastTask
	ledgertest.Append(t, b.db, key, ledger.EventSucceeded)
	again := &ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun, Actor: "ada"}
	if answer, err := ledger.Enqueue(t.Context(), b.db, key, nil, again); err != nil || !answer.New {
		t.Fatalf("%+v, %v", answer, err)
	}
	// As after a restore of the schedules alone.
	ledgertest.ExecAsOwner(t, b.db, "update taskledger.schedule set next_at = $1, last_at = null", first)
	b.pass(b.runner(), time.Hour)
	if after := b.load("sales"); after.Passed != 0 || after.LastTask == nil {
		t.Errorf("%+v", after)
	}
}

// While nothing is due, a pass executes one statement.
func TestIdlePassExecutesOneStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var count statementCount
	config := b.db.Config()
	config.ConnConfig.Tracer = &count
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	r := periodic.NewRunner(db, nil)
	executed := func() int64 {
		before := count.n.Load()
		b.pass(r, 0)
		return count.n.Load() - before
	}
	if n := executed(); n != 1 {
		t.Errorf("%d statements without schedules", n)
	}
	b.apply(hourly("sales"))
	b.pass(r, 0)
	if n := executed(); n != 1 {
		t.Errorf("%d statements before a firing", n)
	}
}

// statementCount counts statements.
type statementCount struct{ n atomic.Int64 }

func (c *statementCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (*statementCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
