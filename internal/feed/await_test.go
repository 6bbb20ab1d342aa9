package feed_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// While a process waits for outcomes, each way to append an event notifies a feed that sleeps. Otherwise none does.
func TestAppendNotifiesWhileAwaited(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	listener := f.listen()
	wake := feed.NewWake()
	wake.SetListening(true)
	opened := f.open(f.pool, &feed.Options{AuditEvery: -1, Wake: wake})
	request := func(id string) ledger.AppendRequest {
		k := ledger.Key{Kind: "k", BizID: ledger.BizID(id)}
		return ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventSucceeded}
	}
	for name, succeed := range map[string]func(id string) error{
		"ledger.Append": func(id string) error {
			_, err := ledger.Append(f.ctx, f.pool, request(id))
			return err
		},
		"ledger.AppendEach": func(id string) error {
			return ledger.AppendEach(f.ctx, f.pool, []ledger.AppendRequest{request(id)})[0].Err
		},
		"Tx.AppendAndCommit": func(id string) error {
			tx, err := ledger.Begin(f.ctx, f.pool, &ledger.TxOptions{Guard: true})
			if err == nil {
				_, err = tx.AppendAndCommit(f.ctx, request(id))
			}
			return err
		},
		"append_event": func(id string) error {
			_, err := f.owner.Exec(f.ctx,
				"select taskledger_internal.append_event('k', $1, 1, 'succeeded', 'test', null)", id)
			return err
		},
	} {
		for _, isAwaited := range []bool{false, true} {
			id := name
			if isAwaited {
				id += " awaited"
				if err := feed.AwaitOutcomes(f.ctx, f.pool, time.Minute); err != nil {
					t.Fatal(err)
				}
			} else {
				f.exec(f.owner, "select setval('taskledger.awaited_until', 1)")
			}
			f.enqueue(f.pool, id)
			for f.next(opened) != id {
			}
			for listener.notified(100 * time.Millisecond) { // of the enqueue
			}
			got := make(chan string)
			go func() { got <- f.next(opened) }()
			await(t, "the feed to sleep", f.isAsleep)
			if err := succeed(id); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			wait := 100 * time.Millisecond
			if isAwaited {
				wait = 10 * time.Second
			}
			if listener.notified(wait) != isAwaited {
				t.Errorf("%s: the feed was notified: %v", id, !isAwaited)
			}
			if read := <-got; read != id {
				t.Errorf("the feed delivered %q, want %q", read, id)
			}
		}
	}
}
