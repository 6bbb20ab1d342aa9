package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// TestFeedInterleavings plays the races that lose or repeat events, one at a time. The feed passes each, and
// a mutant of it fails: the mutant is the simpler algorithm that a later change might introduce.
func TestFeedInterleavings(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	tests := []struct {
		name   string
		mutate func(t *testing.T, opened *feed.Feed)
		play   func(opened *feed.Feed) []string
		want   []string
	}{
		{
			name: "a lower position commits after a higher one",
			// naive max(position): the tail only, above the highest position seen.
			mutate: func(t *testing.T, opened *feed.Feed) {
				opened.Mutate(replace(t, feed.WindowSQL,
					"coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0)",
					"(select coalesce(max(e.position), 0) from taskledger.event e)"),
					f.mutantPage("pg_snapshot_xmin(feed_page.seen) < feed_page.seen_bound", "false"))
			},
			play: func(opened *feed.Feed) []string {
				slow := f.begin()
				f.enqueue(slow, "slow")
				f.enqueue(f.pool, "quick")
				ids := f.drain(opened)
				f.commit(slow)
				return append(ids, f.drain(opened)...)
			},
			want: []string{"quick", "slow"},
		},
		{
			name: "a running transaction above the snapshot's xmax",
			// xip only: with nothing completed since it began, a running xid is not in xip.
			mutate: func(t *testing.T, opened *feed.Feed) {
				opened.Mutate("", f.mutantPage("x::text::xid8\n        from generate_series(",
					"null from generate_series("))
			},
			play: func(opened *feed.Feed) []string {
				running := f.begin()
				f.enqueue(running, "running")
				ids := f.drain(opened)
				f.commit(running)
				return append(ids, f.drain(opened)...)
			},
			want: []string{"running"},
		},
		{
			name: "an exactly full page is not the last",
			// No look-ahead: a full page ends its window.
			mutate: func(t *testing.T, opened *feed.Feed) {
				opened.Mutate(replace(t, feed.WindowSQL, "$4::integer", "$4::integer - 1"),
					replace(t, feed.PageSQL, "$7::integer", "$7::integer - 1"))
			},
			play: func(opened *feed.Feed) []string {
				f.enqueue(f.pool, "1", "2", "3", "4")
				return f.drain(opened)
			},
			want: []string{"1", "2", "3", "4"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f.reset()
			options := &feed.Options{PageSize: 2, AuditEvery: -1}
			if diff := difference.Of(test.want, test.play(f.open(f.pool, options))); diff != "" {
				t.Errorf("the feed delivered (-want +got):\n%s", diff)
			}
			f.reset()
			mutant := f.open(f.pool, options)
			test.mutate(t, mutant)
			if got := test.play(mutant); slices.Equal(got, test.want) {
				t.Error("the mutant passes: this interleaving proves nothing")
			}
		})
	}
}

// An exactly full last page finishes its window: a reader that starts again behind it does not read that
// window again.
func TestFeedExactlyFullLastPage(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "1", "2")
	opened := f.open(f.pool, &feed.Options{PageSize: 2, AuditEvery: -1})
	page, ok, err := opened.Poll(f.ctx)
	if err != nil || !ok || !page.Last() {
		t.Fatalf("page of 2 of 2 events: ok %v, last %v, err %v", ok, page.Last(), err)
	}
	if err := page.Advance(f.ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	var open bool
	if err := f.pool.QueryRow(f.ctx, `select until is not null from taskledger.cursor order by n desc limit 1`).
		Scan(&open); err != nil {
		t.Fatal(err)
	}
	if open {
		t.Error("the cursor still stands inside the window")
	}
	f.enqueue(f.pool, "3")
	if got := f.drain(f.open(f.pool, nil)); !slices.Equal(got, []string{"3"}) {
		t.Errorf("a new reader was given %v, want [3]", got)
	}
}

// The bound of a window must be younger than its top. A transaction that drew its xid before the window
// cannot give one.
func TestFeedRefusesABoundDrawnEarly(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	play := func(mutate bool) ([]string, error) {
		f.reset()
		reader := f.begin()
		opened := f.open(reader, nil) // the reader's first cursor row draws its xid
		if mutate {
			opened.Mutate(replace(t, feed.WindowSQL, "pg_current_xact_id_if_assigned() is not null", "false"), "")
		}
		defer func() { _ = reader.Rollback(f.ctx) }()
		writer := f.begin()
		defer func() { _ = writer.Rollback(f.ctx) }()
		f.enqueue(writer, "writer")
		if _, _, err := opened.Poll(f.ctx); err != nil {
			return nil, err
		}
		f.commit(writer)
		return f.drain(opened), nil
	}
	if _, err := play(false); err == nil || !strings.Contains(err.Error(), "has written") {
		t.Errorf("a window in a transaction with an xid: %v, want a refusal", err)
	}
	if got, err := play(true); err != nil || len(got) != 0 {
		t.Errorf("the mutant delivered %v (%v): this interleaving proves nothing", got, err)
	}
}

// A standby's snapshot does not list the running transactions, so a window opened there would take them for
// delivered.
func TestFeedRefusesAStandby(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	standby, err := f.server.Standby(f.ctx)
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err) // binaries without client tools
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Close() })

	f.enqueue(f.pool, "first") // also appends the first cursor row of opened, which a standby cannot write
	opened := f.open(f.pool, nil)
	f.drain(opened)

	onStandby, err := pgxpool.New(f.ctx, ledgertest.URLAs(t, standby.URL(ledgertest.Database), "relay"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(onStandby.Close)
	if _, err := feed.Open(f.ctx, onStandby, "test", nil); !errors.Is(err, feed.ErrNotPrimary) {
		t.Errorf("feed on a standby: %v, want ErrNotPrimary", err)
	}
	subscribing, err := pgxpool.New(f.ctx, ledgertest.URLAs(t, standby.URL(ledgertest.Database), "subscriber"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(subscribing.Close)
	if _, err := readFeed(f.ctx, subscribing, "mails", 1); !pgerr.Is(err, pgerr.ReadOnlySQLTransaction) {
		t.Errorf("read_feed on a standby: %v, want read_only_sql_transaction", err)
	}

	reading := func() *feed.Feed { return f.open(standbyReads{DB: f.pool, standby: onStandby}, nil) }
	if _, _, err := reading().Poll(f.ctx); !errors.Is(err, feed.ErrNotPrimary) {
		t.Errorf("window on a standby: %v, want ErrNotPrimary", err)
	}
	// The mutant takes the standby's snapshot, and its xmax for the bound, since a standby draws no xids. It advances
	// no cursor: its place is ahead of the primary's sequence.
	mutant := reading()
	mutant.Mutate(replace(t, replace(t,
		replace(t, feed.WindowSQL, "pg_is_in_recovery() as is_standby", "false as is_standby"),
		"pg_current_xact_id()\n", "pg_snapshot_xmax(d.until)\n"),
		"coalesce(taskledger_internal.incarnation(), '')", "'"+opened.Incarnation()+"'"), "")

	running := f.begin()
	f.enqueue(running, "running")
	f.enqueue(f.pool, "after")
	replayed := func(id string) {
		await(t, "the standby to replay", func() bool {
			_, err := ledger.Load(f.ctx, onStandby, ledger.Key{Kind: "k", BizID: ledger.BizID(id)})
			return err == nil
		})
	}
	replayed("after")
	got := f.poll(mutant)
	if !slices.Contains(got, "after") {
		t.Errorf("the mutant delivered %v", got)
	}
	f.commit(running)
	numbers := make([]string, 100) // past the positions that are drawn on the standby
	for i := range numbers {
		numbers[i] = fmt.Sprint("later ", i)
	}
	f.enqueue(f.pool, numbers...)
	replayed("running")
	replayed(numbers[99])
	got = f.poll(mutant)
	if !slices.Contains(got, numbers[99]) {
		t.Errorf("the mutant delivered %d events and not the last", len(got))
	}
	if slices.Contains(got, "running") {
		t.Error("the mutant lost nothing: this interleaving proves nothing")
	}
}

// standbyReads reads windows and pages on a standby, and keeps its cursor on the primary.
type standbyReads struct {
	ledger.DB
	standby ledger.DB
}

func (db standbyReads) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if strings.Contains(sql, "is_standby") || sql == feed.PageSQL {
		return db.standby.Query(ctx, sql, args...)
	}
	return db.DB.Query(ctx, sql, args...)
}

// A reader that was suspended while others advanced must not advance, even when the rows that would stop it
// have been thinned. The mutant fences by the key alone.
func TestFeedFencesAZombieAfterThinning(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	for _, test := range []struct {
		name string
		thin string // the rows that were thinned
	}{
		{name: "its own row is gone", thin: "n < (select max(n) from taskledger.cursor)"},
		{name: "its own row is kept", thin: "n > 1 and n < (select max(n) from taskledger.cursor)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.reset()
			f.enqueue(f.pool, "1")
			zombie := f.open(f.pool, nil)
			asleep, ok, err := zombie.Poll(f.ctx)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			other := f.open(f.pool, nil)
			f.drain(other)
			for i := range 3 {
				f.enqueue(f.pool, fmt.Sprint("more", i))
				f.drain(other)
			}
			f.exec(f.pool, "delete from taskledger.cursor where "+test.thin)

			if err := asleep.Advance(f.ctx, nil, nil); !errors.Is(err, feed.ErrSuperseded) {
				t.Errorf("the zombie's Advance: %v, want ErrSuperseded", err)
			}
			tag, err := f.pool.Exec(f.ctx, `
				insert into taskledger.cursor
				       (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, origin, mark)
				select $1, $2::bigint + 1, $3::text::pg_snapshot, $4::bigint, $5::text::xid8,
				        nullif($6::text, '')::pg_snapshot, $7::bigint,
				        nullif($8::text, '')::xid8, $9::bigint, taskledger_internal.origin(), $10::text::json
				 where $11::text <> '' and $12::text is not null and $13::bigint >= 0 and $14::bigint is not null
				   and $15::text <> '' and $16::integer = 0 and $17::bigint > 0
				on conflict do nothing`, asleep.AppendArgs()...)
			if err != nil || tag.RowsAffected() != 1 {
				t.Errorf("the mutant inserted %d rows (%v): this interleaving proves nothing", tag.RowsAffected(), err)
			}
		})
	}
}

// A million rows of an unfinished transaction are stepped over once, not at every poll.
func TestFeedPollBesideManyUncommittedRows(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "1")
	opened := f.open(f.pool, nil)
	f.drain(opened)
	bulk := f.beginOn(f.owner)
	fill(f, bulk, 1, 50_000)
	if got := f.drain(opened); len(got) != 0 {
		t.Fatalf("uncommitted events were delivered: %d", len(got))
	}
	mutant := replace(t, feed.WindowSQL,
		"coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0)",
		"(select coalesce(max(e.position), 0) from taskledger.event e)")
	real, fromRows := blocks(f, feed.WindowSQL, opened.WindowArgs()), blocks(f, mutant, opened.WindowArgs())
	t.Logf("an idle poll touches %d blocks", real)
	if real > 20 {
		t.Errorf("an idle poll touches %d blocks", real)
	}
	if fromRows < 10*real {
		t.Errorf("taking top from the rows touches %d blocks, from the sequence %d: this proves nothing", fromRows,
			real)
	}
	f.commit(bulk)
	if got := f.drain(opened); len(got) != 50_000 {
		t.Errorf("delivered %d of 50,000 events after their commit", len(got))
	}
}

// The top of a window is never ahead of the drawn positions: read without nextval's lock, the sequence
// returns values that it takes back.
func TestFeedTopNeverGoesBack(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	drawing, stop := context.WithCancel(f.ctx)
	defer stop()
	writer, err := f.owner.Acquire(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(chan struct{})
	go func() {
		defer close(drawn)
		defer writer.Release()
		for drawing.Err() == nil {
			_, _ = writer.Exec(drawing, `select nextval('taskledger.event_position_seq') from generate_series(1, 5000)`)
		}
	}()
	last := int64(0)
	for range 5_000 {
		top := edgeNow(f)[1].(int64)
		if top < last {
			t.Errorf("top went from %d back to %d", last, top)
		}
		last = top
	}
	stop()
	<-drawn
	if last == 0 {
		t.Error("nothing was drawn")
	}
}

// A reader that starts again within a window continues after the last page advanced, and its audit does not
// report the earlier pages as missed.
func TestFeedResumesInsideAWindow(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "1", "2", "3", "4", "5")
	options := &feed.Options{PageSize: 2, AuditEvery: time.Nanosecond}
	page, ok, err := f.open(f.pool, options).Poll(f.ctx)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := page.Advance(f.ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of([]string{"3", "4", "5"}, f.drain(f.open(f.pool, options))); diff != "" {
		t.Errorf("the second reader was given (-want +got):\n%s", diff)
	}
}

// A page ends when its data is too large, not only after a number of events.
func TestFeedPageBytes(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	large := json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)
	for i := range 5 {
		if _, err := ledger.Enqueue(f.ctx, f.pool, ledger.Key{Kind: "k", BizID: ledger.BizID(fmt.Sprint(i))}, large,
			nil); err != nil {
			t.Fatal(err)
		}
	}
	opened := f.open(f.pool, &feed.Options{PageBytes: 1500, AuditEvery: -1})
	var sizes []int
	for {
		page, ok, err := opened.Poll(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if err := page.Advance(f.ctx, nil, nil); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.Events))
	}
	if diff := difference.Of([]int{2, 2, 1}, sizes); diff != "" {
		t.Errorf("events a page (-want +got):\n%s", diff)
	}
}

// The feed refuses a cursor that came with a dump: its xids belong to another cluster. It accepts a cursor that came
// with a physical copy.
func TestFeedRefusesARestoredCursor(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.enqueue(f.pool, "1")
	f.drain(f.open(f.pool, nil))
	// as after pg_upgrade: xmin is xid
	f.exec(f.owner, `update taskledger.cursor set origin = '1/1', xid = pg_current_xact_id()`)
	f.open(f.pool, nil)
	f.exec(f.owner, `update taskledger.cursor set xid = '77'`) // as after pg_restore: xmin is the restoring transaction
	var origin *feed.OriginError
	if _, err := feed.Open(f.ctx, f.pool, "test", nil); !errors.As(err, &origin) {
		t.Errorf("feed on a restored cursor: %v, want OriginError", err)
	}
}

func TestFeedRewind(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	opened := f.open(f.pool, nil)
	f.enqueue(f.pool, "1")
	f.drain(opened)
	f.enqueue(f.pool, "2")
	f.drain(opened)
	cursors, err := opened.Cursors(f.ctx, 0, 10)
	if err != nil || len(cursors) != 3 {
		t.Fatalf("cursors: %v, %v; want 3", cursors, err)
	}
	if err := opened.Rewind(f.ctx, cursors[1], []byte(`{"generation":2}`)); err != nil {
		t.Fatal(err)
	}
	if got := f.drain(opened); !slices.Equal(got, []string{"2"}) {
		t.Errorf("after the rewind: %v, want [2]", got)
	}
}

func TestFeedThinsCursors(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	opened := f.open(f.pool, nil)
	for i := range 40 {
		f.enqueue(f.pool, fmt.Sprint(i))
		f.drain(opened)
	}
	// Ten minutes ago, ten rows a second; and the newest now.
	f.exec(f.owner,
		`update taskledger.cursor
		    set recorded_at = date_trunc('minute', clock_timestamp()) - interval '10 minutes' + n * interval '100 ms'
		  where n < 41`)
	if _, _, err := f.open(f.pool, nil).Poll(f.ctx); err != nil {
		t.Fatal(err)
	}
	var kept, newest int
	if err := f.pool.QueryRow(f.ctx, `select count(*), max(n) from taskledger.cursor`).
		Scan(&kept, &newest); err != nil {
		t.Fatal(err)
	}
	if newest != 41 || kept < 5 || kept > 7 {
		t.Errorf("kept %d rows up to n %d, want one for each of 5 seconds and the newest, 41", kept, newest)
	}
}

// A sequence that draws positions in advance is refused: such a position may be older than the transaction that uses
// it, and its event would be in no window.
func TestSequenceCacheIsRefused(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.exec(f.owner, "alter sequence taskledger.event_position_seq cache 20")
	var cached *feed.SequenceError
	if _, err := feed.Open(f.ctx, f.pool, "test", nil); !errors.As(err, &cached) || cached.Cache != 20 {
		t.Errorf("error %v, want *SequenceError", err)
	}
	f.exec(f.owner, "alter sequence taskledger.event_position_seq cache 1")
	f.open(f.pool, nil)
}

// The clock jumps forward by more than cursor rows are kept. The newest rows stay, so that a loss of the stream is
// still published again from where it began.
func TestClockJumpKeepsTheNewestCursorRows(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	for i := range 150 {
		f.enqueue(f.pool, fmt.Sprint(i))
		f.drain(f.open(f.pool, nil))
	}
	// A jump of the clock makes the rows old. Each is the only one of its minute.
	f.exec(f.owner, `update taskledger.cursor
	                    set recorded_at = recorded_at - interval '80 hours' + n * interval '1 minute'`)
	f.drain(f.open(f.pool, nil)) // thins
	if n := f.count("select count(*) from taskledger.cursor"); n < 100 || n > 110 {
		t.Errorf("%d rows are kept, want about 100", n)
	}
}
