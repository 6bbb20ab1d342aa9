package feed_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// auditing returns options of a feed that audits whenever it can and counts the events it missed.
func auditing(missed *int) *feed.Options {
	count := func(_ context.Context, events int) { *missed += events }
	return &feed.Options{AuditEvery: time.Nanosecond, Missed: count}
}

// hide returns a mutant of the page statement that does not return some tasks.
func (f *feedFixture) hide(ids ...string) string {
	f.t.Helper()
	return f.mutantPage("and e.position <= feed_page.top",
		"and e.position <= feed_page.top and e.biz_id not in ('"+strings.Join(ids, "', '")+"')")
}

// The audit finds, reports and delivers events that the windows miss by a defect, however long the stretch
// is.
func TestFeedAuditDeliversWhatWasMissed(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	for _, test := range []struct {
		name   string
		hidden []string
		again  bool // the stretch is delivered again, since more than one is missing
	}{
		{name: "one", hidden: []string{"25000"}, again: false},
		{name: "several", hidden: []string{"7", "25000", "49999"}, again: true},
	} {
		t.Run(test.name+" of 50,000", func(t *testing.T) {
			f.reset()
			missed := 0
			opened := f.open(f.pool, auditing(&missed))
			opened.Mutate("", f.hide(test.hidden...))
			fill(f, f.owner, 1, 50_000)

			times := map[string]int{}
			for _, id := range f.drainAudited(opened) {
				times[id]++
			}
			if len(times) != 50_000 {
				t.Errorf("%d of 50,000 events were delivered", len(times))
			}
			for id, n := range times {
				if slices.Contains(test.hidden, id) && n != 1 || n != 1 && !test.again {
					t.Errorf("event %s was delivered %d times", id, n)
				}
			}
			if missed != len(test.hidden) {
				t.Errorf("reported as missed: %d, want %d", missed, len(test.hidden))
			}
		})
	}
	t.Run("a late one", func(t *testing.T) {
		f.reset()
		missed := 0
		opened := f.open(f.pool, auditing(&missed))
		opened.Mutate("", f.mutantPage("pg_snapshot_xmin(feed_page.seen) < feed_page.seen_bound", "false"))
		slow := f.begin()
		f.enqueue(slow, "slow")
		f.enqueue(f.pool, "quick")
		got := f.drainAudited(opened)
		f.commit(slow)
		f.enqueue(f.pool, "last")
		got = append(got, f.drainAudited(opened)...)
		slices.Sort(got)
		if diff := difference.Of([]string{"last", "quick", "slow"}, got); diff != "" {
			t.Errorf("delivered (-want +got):\n%s", diff)
		}
		if missed != 1 {
			t.Errorf("reported as missed: %d, want the one of slow", missed)
		}
	})
}

// drainAudited drains until a whole audit has found no missing event.
func (f *feedFixture) drainAudited(opened *feed.Feed) (ids []string) {
	f.t.Helper()
	// an audit of 50,000 events takes 3 steps, and 3 more to deliver the stretch again
	for quiet := 0; quiet < 10; quiet++ {
		if got := f.drain(opened); len(got) > 0 {
			ids, quiet = append(ids, got...), 0
		}
	}
	return ids
}

// Unaudited events survive a new reader, whether or not the reader before it audited or advanced them, and a
// rewind.
func TestFeedAuditPending(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	for _, test := range []struct {
		name string
		play func(t *testing.T, first *feed.Feed) (second *feed.Feed)
	}{
		{name: "over a reopen", play: func(t *testing.T, first *feed.Feed) *feed.Feed {
			f.advance(first, 4)
			return nil
		}},
		{name: "over a reopen inside of a window", play: func(t *testing.T, first *feed.Feed) *feed.Feed {
			f.advance(first, 2)
			return nil
		}},
		{name: "found, and not advanced", play: func(t *testing.T, first *feed.Feed) *feed.Feed {
			f.advance(first, 4)
			page, ok, err := first.Poll(f.ctx)
			if err != nil || !ok || page.Events[0].BizID != "3" {
				t.Fatalf("the audit found %v, %v, %v", page.Events, ok, err)
			}
			return nil
		}},
		{name: "over a rewind", play: func(t *testing.T, first *feed.Feed) *feed.Feed {
			f.advance(first, 4)
			cursors, err := first.Cursors(f.ctx, 0, 2)
			if err != nil {
				t.Fatal(err)
			}
			if err := first.Rewind(f.ctx, cursors[1], nil); err != nil { // behind the event that was missed
				t.Fatal(err)
			}
			return first
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.reset()
			f.enqueue(f.pool, "1", "2", "3", "4", "5", "6", "7", "8", "9")
			missed := 0
			options := auditing(&missed)
			options.PageSize = 2
			first := f.open(f.pool, options)
			first.Mutate("", f.hide("3"))
			second := test.play(t, first)
			missed = 0
			if second == nil {
				second = f.open(f.pool, options)
			}
			if got := f.drainAudited(second); !slices.Contains(got, "3") || missed != 1 {
				t.Errorf("delivered %v, %d reported as missed; want 3 among them", got, missed)
			}
		})
	}
}

// advance reads and advances a number of pages.
func (f *feedFixture) advance(opened *feed.Feed, pages int) {
	f.t.Helper()
	for range pages {
		page, ok, err := opened.Poll(f.ctx)
		if err != nil || !ok {
			f.t.Fatal(ok, err)
		}
		if err := page.Advance(f.ctx, nil, nil); err != nil {
			f.t.Fatal(err)
		}
	}
}

// An idle ledger costs no audit. In a busy one, an audit reads the index entries of the events that were read
// and of no others, even while an old transaction is open.
func TestFeedAuditCost(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	old := f.begin()
	f.enqueue(old, "old")
	fill(f, f.owner, 1, 50_000)
	missed := 0
	db := &recordingDB{DB: f.pool}
	opened := f.open(db, auditing(&missed))
	f.drainAudited(opened)

	f.exec(f.owner, "vacuum taskledger.event")
	since := edgeNow(f)
	fill(f, f.owner, 50_001, 20_000)
	f.exec(f.owner, "vacuum taskledger.event")
	until := edgeNow(f)
	audit := []any{since[0], until[0], "0", int64(0), int64(20_000)}
	page := []any{since[0], since[1], since[2], until[0], until[1], since[1], int64(20_000)}
	got, want := blocks(f, feed.AuditSQL, audit), blocks(f, feed.PageSQL, page)
	t.Logf("an audit of 20,000 events touches %d blocks, reading them %d", got, want)
	if got*2 > want*3 {
		t.Errorf("an audit of 20,000 events touches %d blocks, reading them %d", got, want)
	}

	f.drainAudited(opened)
	idle := 0
	for range 100 {
		before := snapshotNow(f)
		db.statements = nil
		if _, ok, err := opened.Poll(f.ctx); ok || err != nil {
			t.Fatal(ok, err)
		}
		if snapshotNow(f) != before {
			continue // a vacuum of the server took a transaction ID
		}
		idle++
		if !slices.Equal(db.statements, []string{feed.WindowSQL}) {
			t.Errorf("an idle poll took %d statements, want one of the window", len(db.statements))
		}
	}
	if idle < 50 {
		t.Errorf("%d of 100 polls were idle", idle)
	}
	if missed != 0 {
		t.Errorf("%d events reported as missed", missed)
	}
}

// snapshotNow returns a snapshot and takes no transaction ID.
func snapshotNow(f *feedFixture) (snapshot string) {
	f.t.Helper()
	if err := f.pool.QueryRow(f.ctx, "select pg_current_snapshot()::text").Scan(&snapshot); err != nil {
		f.t.Fatal(err)
	}
	return snapshot
}

// recordingDB records the statements it executes.
type recordingDB struct {
	ledger.DB
	statements []string
}

func (db *recordingDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	db.statements = append(db.statements, sql)
	return db.DB.Query(ctx, sql, args...)
}
