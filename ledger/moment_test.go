package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// watcher is a service that records moments, poll by poll.
type watcher struct {
	t    *testing.T
	pool *pgxpool.Pool
	feed *feed.Feed
}

func watch(t *testing.T, pool *pgxpool.Pool) *watcher {
	t.Helper()
	opened, err := feed.Open(t.Context(), ledgertest.As(t, pool, "relay"), "watcher", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{t, pool, opened}
}

func (w *watcher) poll() {
	w.t.Helper()
	if _, _, err := w.feed.Poll(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// now returns the time of the database.
func (w *watcher) now() (now time.Time) {
	w.t.Helper()
	const statement = "select (extract(epoch from clock_timestamp()) * 1e6)::bigint"
	if _, err := pgquery.Row(w.t.Context(), w.pool, statement, nil, pgquery.Micros(&now)); err != nil {
		w.t.Fatal(err)
	}
	return now
}

// until polls until a query returns true. $1 is a time in microseconds.
func (w *watcher) until(query string, at time.Time) {
	w.t.Helper()
	await(w.t, query, func() bool {
		w.poll()
		var done bool
		if err := w.pool.QueryRow(w.t.Context(), query, at.UnixMicro()).Scan(&done); err != nil {
			w.t.Fatal(err)
		}
		return done
	})
}

const (
	hasMoment = "select exists (select from taskledger.moments where extract(epoch from at) * 1e6 > $1::bigint)"
	isQuiet   = "select max(at) < clock_timestamp() - interval '1.3 seconds' and $1::bigint > 0 from taskledger.moments"
)

func (w *watcher) at(t time.Time) ledger.Moment {
	w.t.Helper()
	m, err := ledger.MomentAt(w.t.Context(), w.pool, t)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// A task counts from the commit of its events on, not from the time in their rows. While no service recorded the
// visible events, it counts from that time on.
func TestAsOfIsInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	first, late := ledger.Key{Kind: "k", BizID: "first"}, ledger.Key{Kind: "k", BizID: "late"}
	ledgertest.Enqueue(t, pool, first, "")
	w := watch(t, pool)
	w.until(hasMoment, time.UnixMicro(0))

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	position := ledgertest.Enqueue(t, tx, late, "").Position
	w.until(isQuiet, w.now())
	recorded := w.now()
	w.poll()
	w.poll()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed := w.now()
	w.until(hasMoment, committed)

	before, after := w.at(recorded), w.at(committed)
	if _, err := ledger.LoadAsOf(t.Context(), pool, first, before); err != nil {
		t.Error(err)
	}
	if task, err := ledger.LoadAsOf(t.Context(), pool, late, before); !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("before the commit: %v, %v", task, err)
	}
	task, err := ledger.LoadAsOf(t.Context(), pool, late, after)
	if err != nil || !task.EnqueuedAt.Before(recorded) {
		t.Errorf("after the commit: %v, %v, recorded at %s, want before %s", task, err, task.EnqueuedAt, recorded)
	}
	of, err := ledger.MomentOf(t.Context(), pool, position)
	if err == nil {
		_, err = ledger.LoadAsOf(t.Context(), pool, late, of)
	}
	if err != nil {
		t.Errorf("as of its position: %v", err)
	}
	if of, err = ledger.MomentBefore(t.Context(), pool, position); err == nil {
		_, err = ledger.LoadAsOf(t.Context(), pool, late, of)
	}
	if !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("before its position: %v", err)
	}

	ledgertest.ExecAsOwner(t, pool, "delete from taskledger.moment") // as if no service had run
	if _, err := ledger.LoadAsOf(t.Context(), pool, late, w.at(recorded)); err != nil {
		t.Errorf("without moments: %v", err)
	}
}

// Each version of a task can be loaded as of its position and as of its time, with and without records of the visible
// events, whatever services come and go.
func TestLoadAsOfEachVersion(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	k := ledger.Key{Kind: "k", BizID: "1"}
	ledgertest.Enqueue(t, pool, k, `{"n": 1}`)
	w := watch(t, pool)
	w.poll()
	ledgertest.Append(t, pool, k, ledger.EventStarted, ledger.EventFailed, ledger.EventReleased)
	w.poll()
	for range 50 {
		ledgertest.Enqueue(t, pool, ledger.Key{Kind: "other", BizID: ledger.BizID(time.Now().String())}, "")
	}
	ledgertest.Append(t, pool, k, ledger.EventStarted, ledger.EventFailed)
	w.until(hasMoment, w.now())
	ledgertest.Append(t, pool, k, ledger.EventReleased)
	events, err := ledger.History(t.Context(), pool, k)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		for i, e := range events {
			want, err := ledger.Fold(events[:i+1])
			if err != nil {
				t.Fatal(err)
			}
			of, err := ledger.MomentOf(t.Context(), pool, e.Position)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range []ledger.Moment{of, w.at(e.RecordedAt)} {
				got, err := ledger.LoadAsOf(t.Context(), pool, k, m)
				if err != nil || got.String() != want.String() || !got.UpdatedAt.Equal(want.UpdatedAt) {
					t.Errorf("round %d, as of %s: %s, %v, want %s", round, m, got, err, want)
				}
			}
		}
		ledgertest.ExecAsOwner(t, pool, "delete from taskledger.moment")
	}
	if now, err := ledger.LoadAsOf(t.Context(), pool, k, ledger.Moment{}); err != nil || now.Version != 7 {
		t.Errorf("as of the present: %v, %v", now, err)
	}
}

// A clock that was set back never shows a version without the earlier ones.
func TestAsOfWithAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	k := ledger.Key{Kind: "k", BizID: "1"}
	const insert = `insert into taskledger.event (recorded_at, version, attempt, shard, type, kind, biz_id)
		values (clock_timestamp() - $1::bigint * interval '1 minute', $2, $3, 0, $4::text::taskledger.event_type,
		        'k', '1')`
	for i, minutes := range []int{10, 1, 9, 8} {
		types := []string{"enqueued", "started", "failed", "released"}
		if _, err := pool.Exec(t.Context(), insert, minutes, i+1, min(i, 1), types[i]); err != nil {
			t.Fatal(err)
		}
	}
	w := watch(t, pool)
	for minutes, want := range map[int]ledger.Version{9: 1, 7: 1, 2: 1, 0: 4} {
		at := w.now().Add(-time.Duration(minutes) * time.Minute)
		task, err := ledger.LoadAsOf(t.Context(), pool, k, w.at(at))
		if err != nil || task.Version != want {
			t.Errorf("%d minutes ago: %v, %v, want version %d", minutes, task, err, want)
		}
	}
}

// A moment that cannot be is refused with the reason.
func TestInvalidMoments(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	now := time.Now()
	_, err := ledger.MomentAt(t.Context(), pool, now.Add(-time.Hour))
	wantText(t, err, "the ledger contains no events")
	_, err = ledger.MomentOf(t.Context(), pool, 5)
	wantText(t, err, "5; the nearest events are at no position, since the ledger is empty")

	first := ledgertest.Enqueue(t, pool, ledger.Key{Kind: "k", BizID: "1"}, "").Position
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, tx, ledger.Key{Kind: "k", BizID: "2"}, "")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, pool, ledger.Key{Kind: "k", BizID: "3"}, "")
	_, err = ledger.MomentOf(t.Context(), pool, first+1)
	wantText(t, err, "no event has this position: 2; the nearest events are at positions 1 and 3")
	if !errors.Is(err, ledger.ErrUnknownPosition) {
		t.Error(err)
	}
	_, err = ledger.MomentOf(t.Context(), pool, -1)
	wantText(t, err, "nearest events are at position 1")
	_, err = ledger.MomentBefore(t.Context(), pool, 99)
	wantText(t, err, "nearest events are at position 3")
	for _, at := range []time.Time{{}, now.Add(-time.Hour), time.Unix(-1<<40, 0)} {
		_, err := ledger.MomentAt(t.Context(), pool, at)
		wantText(t, err, "must not be before the first event, of 20")
		if m, err := ledger.MomentFrom(t.Context(), pool, at); err != nil || !m.IsZero() {
			t.Errorf("a range from %v begins at %v, %v", at, m, err)
		}
	}
	for _, at := range []time.Time{now.Add(time.Hour), time.Unix(1<<45, 0)} {
		_, err := ledger.MomentAt(t.Context(), pool, at)
		wantText(t, err, "must not be in the future")
		_, err = ledger.MomentFrom(t.Context(), pool, at)
		wantText(t, err, "must not be in the future")
	}
	if m, err := ledger.MomentFrom(t.Context(), pool, time.Now()); err != nil || m.IsZero() {
		t.Errorf("a range from now begins at %v, %v", m, err)
	}
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}
