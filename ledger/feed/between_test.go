package feed_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger/feed"
)

// Between any two places of a reader lie the events of the pages that lead from the one to the other, also if a
// transaction commits late or a window takes several pages.
func TestBetweenIsWhatTheReaderWasGiven(t *testing.T) {
	f := newFeedFixture(t)
	opened, err := feed.Open(f.ctx, f.pool, "between", &feed.Options{PageSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	first := opened.Cursor()
	places := []feed.Place{first.Place()}
	var ids []string
	reached := []int{0} // by place: how many events lie before it
	for round := range 3 {
		late := f.begin()
		f.enqueue(late, fmt.Sprintf("late-%d", round))
		for i := range 10 {
			f.enqueue(f.pool, fmt.Sprintf("%d-%d", round, i))
		}
		for _, commit := range []bool{false, true} {
			if commit {
				f.commit(late)
			}
			for {
				page, ok, err := opened.Poll(f.ctx)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				for _, e := range page.Events {
					ids = append(ids, string(e.BizID))
				}
				places, reached = append(places, page.Place()), append(reached, len(ids))
			}
		}
	}
	if len(ids) != 33 || len(places) < 10 {
		t.Fatalf("%d events in %d pages", len(ids), len(places)-1)
	}
	for i, from := range places {
		for k, to := range places[i:] {
			for _, limit := range []int{1, 3, 100} {
				var got []string
				for at := from; at != to; {
					events, next, err := feed.Between(f.ctx, f.pool, at, to, limit)
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range events {
						got = append(got, string(e.BizID))
					}
					at = next
				}
				want := append([]string(nil), ids[reached[i]:reached[i+k]]...)
				if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
					t.Fatalf("from place %d to %d, %d at a time: %s", i, i+k, limit, diff)
				}
			}
		}
	}
}
