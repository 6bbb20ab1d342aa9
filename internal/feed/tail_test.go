package feed_test

import (
	"slices"
	"testing"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A tail returns each event that is committed after it began, even if it was recorded before, and no other. The role
// reader suffices, and no row is written.
func TestTail(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	reader := f.connect(ledgertest.Database, "reader")
	if _, err := feed.Tail(f.ctx, reader, nil); err != nil { // of an empty ledger
		t.Fatal(err)
	}
	f.enqueue(f.pool, "before")
	late := f.begin()
	f.enqueue(late, "late")
	tail, err := feed.Tail(f.ctx, reader, &feed.Options{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	f.enqueue(f.pool, "1", "2")
	f.commit(late)
	var got []string
	await(t, "three events", func() bool {
		page, ok, err := tail.Poll(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			got = append(got, string(page.Events[0].BizID))
		}
		return len(got) == 3
	})
	slices.Sort(got)
	if !slices.Equal(got, []string{"1", "2", "late"}) {
		t.Errorf("got %v", got)
	}
	var rows int
	const written = "select (select count(*) from taskledger.cursor) + (select count(*) from taskledger.moment)"
	if err := f.pool.QueryRow(f.ctx, written).Scan(&rows); err != nil || rows > 0 {
		t.Errorf("%d rows were written, %v", rows, err)
	}
}

// The first feed of a new database does not end a tail that began before it.
func TestTailOfANewDatabase(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	tail, err := feed.Tail(f.ctx, f.pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := feed.Open(f.ctx, f.pool, "first", nil); err != nil {
		t.Fatal(err)
	}
	f.enqueue(f.pool, "1")
	page, ok, err := tail.Poll(f.ctx)
	if err != nil || !ok || page.Events[0].BizID != "1" {
		t.Errorf("%v, %t, %v", page.Events, ok, err)
	}
}
