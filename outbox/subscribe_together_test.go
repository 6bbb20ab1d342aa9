package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
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
