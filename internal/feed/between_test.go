package feed_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// Between any two places of a reader lie the events of the pages that lead from the first to the second, even if a
// transaction commits late or a window takes several pages.
func TestBetweenIsWhatTheReaderWasGiven(t *testing.T) {
	t.Parallel()
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
	checkPollTo(f, places, ids, reached)
	if len(ids) != 33 || len(places) < 10 {
		t.Fatalf("%d events in %d pages", len(ids), len(places)-1)
	}
	endsIn1 := func(e ledger.Event) bool { return strings.HasSuffix(string(e.BizID), "1") }
	choices := []feed.Choice{
		{Read: 1, Limit: 1}, {Read: 3, Limit: 3}, {Read: 100, Limit: 100}, {Read: 100, Limit: 3},
		{Read: 5, Limit: 1, Wants: endsIn1}, {Read: 100, Limit: 1, Wants: endsIn1},
		{Read: 100, Limit: 100, Wants: endsIn1},
		{Read: 100, Limit: 100, First: 1}, {Read: 5, Limit: 5, First: 2}, {Read: 7, Limit: 2, First: 1, Wants: endsIn1},
		{Read: 100, Limit: 100, Bytes: 1}, {Read: 100, Limit: 100, First: 1, Bytes: 20},
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
				slices.Sort(want)
				slices.Sort(got)
				if diff := difference.OfContents(want, got); diff != "" {
					t.Fatalf("from place %d to %d, %d of %d: %s", i, i+k, choice.Limit, choice.Read, diff)
				}
			}
		}
	}
}

// checkPollTo reads to each place of another reader in pages of several sizes.
func checkPollTo(f *feedFixture, places []feed.Place, ids []string, reached []int) {
	f.t.Helper()
	for i, to := range places {
		for _, size := range []int{1, 3, 100} {
			name := fmt.Sprintf("to-%d-%d", i, size)
			opened, err := feed.Open(f.ctx, f.pool, name, &feed.Options{PageSize: size, AuditEvery: -1})
			if err != nil {
				f.t.Fatal(err)
			}
			got := []string{}
			for {
				page, ok, err := opened.PollTo(f.ctx, to)
				if err != nil {
					f.t.Fatal(err)
				}
				if !ok {
					break
				}
				for _, e := range page.Events {
					if e.Login == "" {
						f.t.Errorf("position %d has no login", e.Position)
					}
					got = append(got, string(e.BizID))
				}
				if err := page.Advance(f.ctx, nil, nil); err != nil {
					f.t.Fatal(err)
				}
			}
			want := slices.Sorted(slices.Values(ids[:reached[i]]))
			if diff := difference.OfContents(want, slices.Sorted(slices.Values(got))); diff != "" {
				f.t.Fatalf("to place %d, %d at a time: %s", i, size, diff)
			}
			if at, _, err := feed.PlaceOf(f.ctx, f.pool, name); err != nil || i > 0 && at != to {
				f.t.Errorf("to place %d: the cursor is at %+v, want %+v; %v", i, at, to, err)
			}
		}
	}
}
