package feed_test

import (
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

// The memory of a released page is that of a later one. Copies of its events stay as they are, and so does a page that
// was not released.
func TestReleasedPage(t *testing.T) {
	f := newFeedFixture(t)
	reader := f.open(f.pool, &feed.Options{PageSize: 20, AuditEvery: -1})
	next := func(ids ...string) feed.Page {
		t.Helper()
		f.enqueue(f.pool, ids...)
		page, ok, err := reader.Poll(f.ctx)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if got := idsOf(page.Events); !slices.Equal(got, ids) {
			t.Fatalf("the page has %v, want %v", got, ids)
		}
		return page
	}
	first := next("1", "2", "3")
	kept := slices.Clone(first.Events)
	data := string(kept[0].Data)
	memory := &first.Events[0]
	first.Release()
	if memory.BizID != "" {
		t.Errorf("a released page keeps %s alive", memory.BizID)
	}
	second := next("4", "5")
	if &second.Events[0] != memory {
		t.Error("the memory of the released page is not used again")
	}
	third := next("6")
	if &third.Events[0] == memory {
		t.Error("a page that is not released lost its memory")
	}
	third.Release()
	if got := idsOf(second.Events); !slices.Equal(got, []string{"4", "5"}) {
		t.Errorf("a page that is not released has %v", got)
	}
	if got := idsOf(kept); !slices.Equal(got, []string{"1", "2", "3"}) || string(kept[0].Data) != data {
		t.Errorf("copies have %v and %s", got, kept[0].Data)
	}
	(feed.Page{}).Release()
}

func idsOf(events []ledger.Event) (ids []string) {
	for _, e := range events {
		ids = append(ids, string(e.BizID))
	}
	return ids
}

// The delay of a busy feed grows with its windows, at first so that 2,500 tasks a second have 10 ms at most.
func TestGather(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for n, want := range map[int]time.Duration{
		0: 0, 1: ms / 5, 50: 10 * ms, 150: 15 * ms, 350: 25 * ms, 100_000: 25 * ms,
	} {
		if got := feed.GatherOf(n); got != want {
			t.Errorf("after %d events %v, want %v", n, got, want)
		}
	}
}
