package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// A subscriber that wants none of the events keeps its place some times in a second, not with each page, and its lag
// ends at 0. The next event that it wants is handled once, whether it handles events in a transaction or not.
func TestUnwantedEventsCostLittle(t *testing.T) {
	s := newSubscribers(t)
	const names, tasks = 6, 100
	got := make(chan string, 10*names)
	for i := range names {
		c := outbox.Subscription{Name: fmt.Sprint("idle-", i), Kinds: []ledger.Kind{"wanted"}, Standby: time.Minute}
		record := func(events []ledger.Event) {
			for _, e := range events {
				got <- c.Name + " " + string(e.BizID)
			}
		}
		if i%2 == 0 {
			c.Receive = func(_ context.Context, events []ledger.Event) error { record(events); return nil }
		} else {
			c.Handle = func(_ context.Context, _ pgx.Tx, events []ledger.Event) error { record(events); return nil }
		}
		s.startWith(c)
	}
	s.start(outbox.Subscription{Name: "all", Handle: toTable})
	rows := func() int {
		return s.count(`select count(*) from taskledger.cursor where reader like 'subscriber/idle-%'`)
	}
	s.await("all begin", func() bool { return rows() >= names })
	s.enqueue("unwanted", "first", 1)
	s.wantEach(1)
	before := rows()
	for i := range tasks {
		s.enqueue("unwanted", fmt.Sprint("task-", i, "-"), 1)
		s.wantEach(i + 2)
	}
	if n := rows() - before; n > names*2 {
		t.Errorf("%d subscribers have kept their places %d times for %d events that they do not want", names, n, tasks)
	}
	if _, err := ledger.Enqueue(s.ctx(), s.pool, ledger.Key{Kind: "wanted", BizID: "w"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for range names {
		seen[<-got]++
	}
	if len(seen) != names {
		t.Errorf("handled %v", seen)
	}
}

// The lag of a subscriber becomes 0 even if it does not want the last events.
func TestLagOfUnwantedEventsEnds(t *testing.T) {
	s := newSubscribers(t)
	for i := range 3 {
		s.start(outbox.Subscription{Name: fmt.Sprint("idle-", i), Kinds: []ledger.Kind{"wanted"},
			Receive: func(context.Context, []ledger.Event) error { return nil }})
	}
	for i := range 5 {
		s.enqueue("unwanted", fmt.Sprint("task-", i, "-"), 1)
	}
	s.await("no lag", func() bool {
		all, err := feed.Subscribers(s.ctx(), s.pool, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if one.Lag > 0 {
				return false
			}
		}
		return len(all) == 3
	})
}

// An event that fails comes alone, soon after the first error, whatever unwanted events are before it, and the events
// before it are passed for good.
func TestFailingEventBehindUnwantedOnes(t *testing.T) {
	for _, unwanted := range []int{2, 700} {
		for _, isReceive := range []bool{false, true} {
			t.Run(fmt.Sprint(unwanted, " unwanted, Receive ", isReceive), func(t *testing.T) {
				s := newSubscribers(t)
				var good, alone atomic.Int64
				handle := func(events []ledger.Event) error {
					var err error
					for _, e := range events {
						switch e.BizID {
						case "good":
							good.Add(1)
						case "bad":
							err = errors.New("bad")
						}
					}
					if err != nil && len(events) == 1 {
						alone.Add(1)
					}
					return err
				}
				c := outbox.Subscription{Name: "one", Kinds: []ledger.Kind{"wanted"}, Standby: time.Minute}
				if isReceive {
					c.Receive = func(_ context.Context, events []ledger.Event) error { return handle(events) }
				} else {
					c.Handle = func(_ context.Context, _ pgx.Tx, events []ledger.Event) error { return handle(events) }
				}
				s.enqueue("wanted", "first-", 1)
				s.startWith(c)
				s.await("the first event is passed", func() bool {
					return s.count(`select count(*) from taskledger.cursor where reader = 'subscriber/one'`) > 1
				})
				entries := make([]ledger.Entry, 0, unwanted+2)
				for i := range unwanted {
					key := ledger.Key{Kind: "unwanted", BizID: ledger.BizID(fmt.Sprint(i))}
					entries = append(entries, ledger.Entry{Key: key})
				}
				for _, id := range []ledger.BizID{"good", "bad"} {
					entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "wanted", BizID: id}})
				}
				if _, err := ledger.EnqueueMany(s.ctx(), s.pool, entries); err != nil {
					t.Fatal(err)
				}
				s.await("the event that fails comes alone again and again", func() bool { return alone.Load() >= 3 })
				if n := good.Load(); n > 10 { // pages double in size, so a few of them have both events
					t.Errorf("the event before it was handled %d times", n)
				}
			})
		}
	}
}
