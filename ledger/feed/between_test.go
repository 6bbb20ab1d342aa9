package feed_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/taskledger/taskledger/ledger"
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
	endsIn1 := func(e ledger.Event) bool { return strings.HasSuffix(string(e.BizID), "1") }
	choices := []feed.Choice{
		{Read: 1, Limit: 1}, {Read: 3, Limit: 3}, {Read: 100, Limit: 100}, {Read: 100, Limit: 3},
		{Read: 5, Limit: 1, Wants: endsIn1}, {Read: 100, Limit: 1, Wants: endsIn1},
		{Read: 100, Limit: 100, Wants: endsIn1},
	}
	for i, from := range places {
		for k, to := range places[i:] {
			for _, choice := range choices {
				var got []string
				for at := from; at != to; {
					events, next, err := feed.Between(f.ctx, f.pool, at, to, choice)
					if err != nil {
						t.Fatal(err)
					}
					if len(events) > choice.Limit {
						t.Fatalf("%d events, want at most %d", len(events), choice.Limit)
					}
					for _, e := range events {
						got = append(got, string(e.BizID))
					}
					at = next
				}
				want := slices.DeleteFunc(slices.Clone(ids[reached[i]:reached[i+k]]), func(id string) bool {
					return choice.Wants != nil && !choice.Wants(ledger.Event{Key: ledger.Key{BizID: ledger.BizID(id)}})
				})
				if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
					t.Fatalf("from place %d to %d, %d of %d: %s", i, i+k, choice.Limit, choice.Read, diff)
				}
			}
		}
	}
}
