package feed_test

import (
	"slices"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// A later page uses the memory of a released page. Copies of its events stay as they are, and so does a page that was
// not released.
func TestReleasedPage(t *testing.T) {
	t.Parallel()
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

// The delay of a busy feed grows with its windows, at first so that 2,500 tasks a second have 10 ms at most. That of a
// reader with a long Gather is half as long when its pages are large.
func TestGather(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	relay, projector := feed.Options{PageSize: 2000}, feed.Options{PageSize: 4000, Gather: 100 * ms}
	for _, test := range []struct {
		options feed.Options
		events  int
		want    time.Duration
	}{
		{options: relay, events: 0, want: ms},
		{options: relay, events: 1, want: ms},
		{options: relay, events: 10, want: 2 * ms},
		{options: relay, events: 50, want: 10 * ms},
		{options: relay, events: 150, want: 15 * ms},
		{options: relay, events: 350, want: 25 * ms},
		{options: relay, events: 100_000, want: 25 * ms},
		{options: feed.Options{PageSize: 1}, events: 0, want: ms},
		{options: projector, events: 0, want: 100 * ms},
		{options: projector, events: 999, want: 100 * ms},
		{options: projector, events: 1000, want: 50 * ms},
		{options: projector, events: 100_000, want: 50 * ms},
	} {
		if got := feed.GatherOf(test.options, test.events); got != test.want {
			t.Errorf("Gather %v after %d events: %v, want %v", test.options.Gather, test.events, got, test.want)
		}
	}
}
