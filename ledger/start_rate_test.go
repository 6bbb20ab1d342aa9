package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// setLimit sets a limit.
func setLimit(t testing.TB, db ledger.DB, l ledger.StartLimit) {
	t.Helper()
	if l.Name == "" {
		l.Name = "partner-x"
	}
	if l.Kinds == nil {
		l.Kinds = map[ledger.Kind]int{gated: 1}
	}
	if err := ledger.SetStartLimit(t.Context(), db, l, "alice"); err != nil {
		t.Fatal(err)
	}
}

// rated returns a database with a rate and n waiting tasks.
func rated(t testing.TB, r ledger.StartRate, n int) *pgxpool.Pool {
	t.Helper()
	db := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	setLimit(t, db, ledger.StartLimit{Rate: &r})
	for i := range n {
		ledgertest.Enqueue(t, db, gatedKey(i), "")
	}
	return db
}

// startUpTo starts tasks of a kind from the i-th on, until the limit refuses one, and returns how many it has started.
func startUpTo(t testing.TB, db ledger.DB, i int) (n int) {
	t.Helper()
	for {
		err := appendGated(t, db, i+n, 1, ledger.EventStarted)
		if errors.Is(err, ledger.ErrStartLimit) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// age makes all uses of tokens older.
func age(t testing.TB, db *pgxpool.Pool, by time.Duration) {
	t.Helper()
	ledgertest.ExecAsOwner(t, db, `
		update taskledger.start_token
		   set taken_at = taken_at - $1::bigint * interval '1 microsecond'`, by.Microseconds())
}

// A burst starts at once, and no further task until a window has passed, whenever that begins.
func TestStartRate(t *testing.T) {
	t.Parallel()
	db := rated(t, ledger.StartRate{Starts: 60, Period: time.Hour, Burst: 3}, 20) // 3 in 3 minutes
	for i, want := range []int{3, 0} {
		if n := startUpTo(t, db, 3*i); n != want {
			t.Fatalf("%d tasks have started, want %d", n, want)
		}
	}
	age(t, db, 3*time.Minute-time.Second)
	if n := startUpTo(t, db, 3); n != 0 {
		t.Fatalf("%d tasks have started within the window", n)
	}
	age(t, db, time.Second)
	mustAppend(t, db, 3, 1, ledger.EventStarted)
	age(t, db, 2*time.Minute)
	if n := startUpTo(t, db, 4); n != 2 {
		t.Fatalf("%d tasks have started, want the other 2 of the burst", n)
	}
	age(t, db, time.Minute)
	if n := startUpTo(t, db, 6); n != 1 {
		t.Fatalf("%d tasks have started, want 1: the others are 1 minute old", n)
	}
	if l := limitNamed(t, db, "partner-x"); l.Next.IsZero() || l.Rate.String() != "60/h burst 3" {
		t.Errorf("%+v", l)
	}
}

func limitNamed(t testing.TB, db ledger.DB, name string) ledger.StartLimitStatus {
	t.Helper()
	all, err := ledger.ReadStartLimits(t.Context(), db, "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(l ledger.StartLimitStatus) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("no limit %s in %v", name, all)
	}
	return all[i]
}

// mostWithin returns the largest number of starts in an interval, by the ledger's times.
func mostWithin(t testing.TB, db *pgxpool.Pool, length time.Duration) (most int) {
	t.Helper()
	rows, _ := db.Query(t.Context(), "select recorded_at from taskledger.event where type = 'started' order by 1")
	all, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		t.Fatal(err)
	}
	for i, from := range all {
		n := 0
		for _, at := range all[i:] {
			if at.Sub(from) < length {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Programs together never start more tasks than the rate allows, in any interval. Some of their transactions are rolled
// back, some last, old tokens are removed, and the rate changes.
func TestStartRateInACrowd(t *testing.T) {
	t.Parallel()
	const tasks, burst = 80, 5
	const window = 100 * time.Millisecond
	db := rated(t, ledger.StartRate{Starts: 50, Period: time.Second, Burst: burst}, tasks)
	var next sync.Mutex
	i := -1
	var done sync.WaitGroup
	for range 6 {
		done.Go(func() {
			for {
				next.Lock()
				i++
				n := i
				next.Unlock()
				if n >= tasks || t.Failed() {
					return
				}
				if n == tasks/2 {
					setLimit(t, db, ledger.StartLimit{
						Rate: &ledger.StartRate{Starts: 40, Period: time.Second, Burst: 4}})
				}
				for rolledBack := n%8 != 0; ; {
					err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
						if err := appendGated(t, tx, n, 1, ledger.EventStarted); err != nil {
							return err
						}
						if n%5 == 0 {
							time.Sleep(3 * time.Millisecond)
						}
						if !rolledBack {
							rolledBack = true
							return errRolledBack
						}
						return nil
					})
					if err == nil {
						break
					}
					if !errors.Is(err, ledger.ErrStartLimit) && !errors.Is(err, errRolledBack) {
						t.Error(err)
						return
					}
					if _, err := db.Exec(t.Context(), "select taskledger_internal.tidy_tokens(100)"); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	done.Wait()
	if most := mostWithin(t, db, window); most > burst || most < 2 {
		t.Errorf("%d tasks have started within %s, want 2 to %d", most, window, burst)
	}
}

var errRolledBack = errors.New("rolled back")

// Each start takes as many tokens as its kind weighs, and both kinds share them.
func TestStartRateWithWeights(t *testing.T) {
	t.Parallel()
	const heavy = ledger.Kind("test.heavy")
	db := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	setLimit(t, db, ledger.StartLimit{
		Kinds: map[ledger.Kind]int{gated: 1, heavy: 4}, Rate: &ledger.StartRate{Starts: 10, Period: time.Hour}})
	start := func(k ledger.Key) error {
		ledgertest.Enqueue(t, db, k, "")
		_, err := ledger.Append(t.Context(), db, ledgertest.Request(k, 1, ledger.EventStarted))
		return err
	}
	for i, c := range []struct {
		kind   ledger.Kind
		isFull bool
	}{
		{kind: heavy}, {kind: gated}, {kind: heavy}, {kind: heavy, isFull: true}, {kind: gated},
		{kind: gated, isFull: true},
	} {
		err := start(ledger.Key{Kind: c.kind, BizID: ledger.BizID(fmt.Sprint("w-", i))})
		if errors.Is(err, ledger.ErrStartLimit) != c.isFull || !c.isFull && err != nil {
			t.Errorf("start %d: %v, want refusal %v", i, err, c.isFull)
		}
	}
}

// A changed burst counts the starts of the last window, committed and in flight.
func TestChangedBurst(t *testing.T) {
	t.Parallel()
	db := rated(t, ledger.StartRate{Starts: 4, Period: time.Hour}, 40)
	for i := range 2 {
		mustAppend(t, db, i, 1, ledger.EventStarted)
	}
	tx := begin(t, db, pgx.TxOptions{})
	mustAppend(t, tx, 2, 1, ledger.EventStarted)
	setLimit(t, db, ledger.StartLimit{Rate: &ledger.StartRate{Starts: 6, Period: time.Hour}})
	if n := startUpTo(t, db, 10); n != 3 {
		t.Fatalf("%d tasks have started next to 3, want 3 of 6", n)
	}
	mustCommit(t, tx)
	setLimit(t, db, ledger.StartLimit{Rate: &ledger.StartRate{Starts: 2, Period: time.Hour}})
	age(t, db, time.Hour-time.Minute)
	if n := startUpTo(t, db, 20); n != 0 {
		t.Fatalf("%d tasks have started", n)
	}
	age(t, db, time.Minute)
	if n := startUpTo(t, db, 20); n != 2 {
		t.Fatalf("%d tasks have started, want 2", n)
	}
}

// The database's clock is set forward and back by hours. The rate is kept by the ledger's own times forward. Set back,
// it lets tasks start again after one window.
func TestStartRateWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	db := rated(t, ledger.StartRate{Starts: 4, Period: time.Minute}, 40)
	if n := startUpTo(t, db, 0); n != 4 {
		t.Fatal(n)
	}
	age(t, db, -5*time.Hour) // the clock was 5 hours ahead then
	if n := startUpTo(t, db, 10); n != 0 {
		t.Fatalf("%d tasks have started, though 4 may have a moment ago", n)
	}
	tidy := func() {
		if _, err := db.Exec(t.Context(), "select taskledger_internal.tidy_tokens(1000)"); err != nil {
			t.Fatal(err)
		}
	}
	tidy()
	if n := startUpTo(t, db, 10); n != 0 {
		t.Fatalf("%d tasks have started, though 4 may have a moment ago", n)
	}
	ledgertest.ExecAsOwner(t, db, `
		update taskledger.start_token set taken_at = taken_at - interval '1 minute'
		 where taken_at < clock_timestamp() + interval '1 hour'`)
	if n := startUpTo(t, db, 10); n != 4 {
		t.Fatalf("%d tasks have started a window later, want 4", n)
	}
	tidy()
	tidy()
	age(t, db, time.Minute)
	if n := startUpTo(t, db, 20); n != 4 {
		t.Fatalf("%d tasks have started another window later, want 4", n)
	}
}

// A rate holds by the times of the events, though a statement may last and takes its tokens at its end.
func TestStartRateOfASlowStatement(t *testing.T) {
	t.Parallel()
	db := rated(t, ledger.StartRate{Starts: 1, Period: time.Second}, 3)
	mustAppend(t, db, 0, 1, ledger.EventStarted)
	_, err := ledgertest.As(t, db, ledgertest.Owner).Exec(t.Context(), `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor)
		select 2, v.attempt, taskledger.shard_of(v.biz_id), v.type::taskledger.event_type, 'test.gated', v.biz_id, 'w'
		  from (values (1, 'started', 'g-1'), (0, 'cancelled', 'g-2')) v(attempt, type, biz_id)
		 where v.attempt = 1 or pg_sleep(1.1) is not null`)
	if code := wantErrorAs[*pgconn.PgError](t, err).Code; code != "TL008" {
		t.Errorf("SQLSTATE %s, want TL008", code)
	}
	mustAppend(t, db, 1, 1, ledger.EventStarted)
}

// A token whose start was rolled back while others were used is not lost.
func TestTokenOfARolledBackStart(t *testing.T) {
	t.Parallel()
	db := rated(t, ledger.StartRate{Starts: 3, Period: time.Hour}, 40)
	startUpTo(t, db, 0)
	age(t, db, time.Hour)
	tx := begin(t, db, pgx.TxOptions{})
	mustAppend(t, tx, 10, 1, ledger.EventStarted)
	if n := startUpTo(t, db, 11); n != 2 {
		t.Fatalf("%d tasks have started next to one, want 2", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		count(t, db, "select taskledger_internal.tidy_tokens(1000)")
	}
	if n := startUpTo(t, db, 20); n != 1 {
		t.Fatalf("%d tasks have started, want 1", n)
	}
	if n := count(t, db, "select count(*) from taskledger.start_token"); n > 6 {
		t.Errorf("%d rows of 3 tokens are left", n)
	}
}

// Uses of tokens are removed, and their number does not grow with the number of starts.
func TestRemoveOldTokens(t *testing.T) {
	t.Parallel()
	db := rated(t, ledger.StartRate{Starts: 3, Period: time.Hour}, 40)
	for i := range 10 {
		if n := startUpTo(t, db, 3*i); n != 3 {
			t.Fatalf("%d tasks have started, want 3", n)
		}
		age(t, db, time.Hour)
	}
	for count(t, db, "select taskledger_internal.tidy_tokens(4)") > 0 {
	}
	if n := count(t, db, "select count(*) from taskledger.start_token"); n != 3 {
		t.Errorf("%d rows of 3 tokens are left", n)
	}
	if n := startUpTo(t, db, 30); n != 3 {
		t.Errorf("%d tasks have started, want 3", n)
	}
}

// A limit with a name is shared by its kinds, and a kind can have several limits.
func TestLimitSharedByKinds(t *testing.T) {
	t.Parallel()
	const other = ledger.Kind("test.other")
	db := gate(t, 3, 10)
	otherKey := ledger.Key{Kind: other, BizID: "o-1"}
	ledgertest.Enqueue(t, db, otherKey, "")
	setLimit(t, db, ledger.StartLimit{Kinds: map[ledger.Kind]int{gated: 1, other: 1}, MaxRunning: new(2)})
	mustAppend(t, db, 0, 1, ledger.EventStarted)
	ledgertest.Append(t, db, otherKey, ledger.EventStarted)
	mustBeFull(t, db, 1, 1)
	mustAppend(t, db, 0, 2, ledger.EventFailed)
	mustAppend(t, db, 1, 1, ledger.EventStarted)
	mustBeFull(t, db, 2, 1)
	if l := limitNamed(t, db, "partner-x"); l.Running != 2 || l.Oldest.IsZero() {
		t.Errorf("%+v, want 2 running", l)
	}
	if l := limitNamed(t, db, string(gated)); l.Running != 1 {
		t.Errorf("%+v, want 1 running", l)
	}
	setLimit(t, db, ledger.StartLimit{Kinds: map[ledger.Kind]int{other: 1}, MaxRunning: new(2)})
	mustAppend(t, db, 2, 1, ledger.EventStarted)
	setLimit(t, db, ledger.StartLimit{Kinds: map[ledger.Kind]int{gated: 1}, MaxRunning: new(9)})
	mustAppend(t, db, 3, 1, ledger.EventStarted)
	mustBeFull(t, db, 4, 1)
	of, err := ledger.ReadStartLimits(t.Context(), db, other, "", 10)
	if err != nil || len(of) != 0 {
		t.Errorf("limits of %s: %v, %v", other, of, err)
	}
}

// ordered returns a database with n waiting tasks of two order keys in turn.
func ordered(t testing.TB, n int) *pgxpool.Pool {
	t.Helper()
	db := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for i := range n {
		ledgertest.Enqueue(t, db, gatedKey(i), "")
	}
	ledgertest.ExecAsOwner(t, db, `
		alter table taskledger.event disable trigger event_append_only, disable trigger event_erasure`)
	ledgertest.ExecAsOwner(t, db, `
		update taskledger.event set order_key = 'customer/' || substr(biz_id, 3)::integer % 2 where version = 1`)
	return db
}

// Each order key has its own permits and tokens. They are removed when it is idle.
func TestLimitPerOrderKey(t *testing.T) {
	t.Parallel()
	db := ordered(t, 60)
	setLimit(t, db, ledger.StartLimit{
		Per: ledger.PerOrderKey, MaxRunning: new(2), Rate: &ledger.StartRate{Starts: 3, Period: time.Hour}})
	for _, i := range []int{0, 2, 1} {
		mustAppend(t, db, i, 1, ledger.EventStarted)
	}
	mustBeFull(t, db, 4, 1) // by its permits
	mustAppend(t, db, 3, 1, ledger.EventStarted)
	mustBeFull(t, db, 5, 1)
	mustAppend(t, db, 0, 2, ledger.EventSucceeded)
	mustAppend(t, db, 4, 1, ledger.EventStarted)
	mustAppend(t, db, 2, 2, ledger.EventSucceeded)
	mustBeFull(t, db, 6, 1) // by its rate
	mustAppend(t, db, 1, 2, ledger.EventSucceeded)
	mustAppend(t, db, 5, 1, ledger.EventStarted)
	for _, i := range []int{3, 4, 5} {
		mustAppend(t, db, i, 2, ledger.EventSucceeded)
	}
	age(t, db, 2*time.Hour)
	ledgertest.ExecAsOwner(t, db, "update taskledger.permit set taken_at = taken_at - interval '1 minute'")
	for count(t, db, "select taskledger_internal.remove_permits(10) + taskledger_internal.tidy_tokens(10)") > 0 {
	}
	const left = "select (select count(*) from taskledger.permit) + (select count(*) from taskledger.start_token)"
	if n := count(t, db, left); n != 0 {
		t.Errorf("%d rows of idle keys are left", n)
	}
	mustAppend(t, db, 6, 1, ledger.EventStarted)
	mustAppend(t, db, 8, 1, ledger.EventStarted)
	mustBeFull(t, db, 10, 1)
}

// Programs together do not exceed the limit of an order key, though its slots are made by the starts and removed.
func TestLimitPerOrderKeyInACrowd(t *testing.T) {
	t.Parallel()
	const tasks = 200
	db := ordered(t, tasks)
	setLimit(t, db, ledger.StartLimit{Per: ledger.PerOrderKey, MaxRunning: new(2)})
	ledgertest.ExecAsOwner(t, db, `
		create function made_old() returns trigger language plpgsql as $$
		begin new.taken_at := new.taken_at - interval '1 minute'; return new; end $$`)
	ledgertest.ExecAsOwner(t, db, `
		create trigger made_old before insert on taskledger.permit for each row execute function made_old()`)
	removing(t, db)
	if most := crowd(t, db, 8, tasks, func(int) {}); most > 4 || most < 2 {
		t.Errorf("%d tasks of two keys ran at a time, want 2 to 4", most)
	}
}
