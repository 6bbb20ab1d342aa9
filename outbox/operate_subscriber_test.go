package outbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A subscriber whose handler is always in a transaction is paused, moved and removed while it works.
func TestBusySubscriberIsOperated(t *testing.T) {
	s := newSubscribers(t)
	operator := ledgertest.As(t, s.pool, "operator")
	s.enqueue("coupon.send", "a-", 500)
	var handled atomic.Int64
	_, ended := s.start(outbox.Subscription{Name: "mails", PageSize: 1, Idle: 5 * time.Millisecond,
		Handle: func(context.Context, pgx.Tx, []ledger.Event) error {
			handled.Add(1)
			time.Sleep(50 * time.Millisecond)
			return nil
		}})
	awaitMore := func() {
		t.Helper()
		before := handled.Load()
		s.await("it works", func() bool { return handled.Load() > before+1 })
	}
	for range 3 {
		awaitMore()
		if err := subscribers.Pause(t.Context(), operator, "mails", true, "", ""); err != nil {
			t.Fatal(err)
		}
		before := handled.Load() // the event under way was committed before
		time.Sleep(120 * time.Millisecond)
		if all, err := feed.Subscribers(t.Context(), s.db, "mails"); err != nil || !all[0].IsPaused {
			t.Errorf("%v: %+v", err, all)
		}
		if n := handled.Load() - before; n != 0 {
			t.Errorf("%d events were handled after the pause", n)
		}
		if err := subscribers.Pause(t.Context(), operator, "mails", false, "", ""); err != nil {
			t.Fatal(err)
		}
		awaitMore()
		if err := subscribers.Seek(t.Context(), operator, "mails", feed.Start{}, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	awaitMore()
	if err := subscribers.Remove(t.Context(), operator, "mails", "", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.wantEnd(ended); !errors.Is(err, outbox.ErrSubscriberRemoved) {
		t.Errorf("a removed subscriber ended with %v", err)
	}
	if all, err := feed.Subscribers(t.Context(), s.db, "mails"); err != nil || len(all) > 0 {
		t.Errorf("%v: %+v", err, all)
	}
}

// An act on a subscriber whose handler hangs fails after a while with the cause, and changes nothing. It succeeds once
// the handler has ended.
func TestHungSubscriberIsOperated(t *testing.T) {
	s := newSubscribers(t)
	operator := ledgertest.As(t, s.pool, "operator")
	s.enqueue("coupon.send", "a-", 2)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	s.start(outbox.Subscription{Name: "mails", PageSize: 1, Idle: 5 * time.Millisecond,
		Handle: func(ctx context.Context, _ pgx.Tx, _ []ledger.Event) error {
			begun <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		}})
	<-begun
	for name, act := range map[string]func() error{
		"pause": func() error { return subscribers.Pause(t.Context(), operator, "mails", true, "", "") },
		"seek": func() error {
			return subscribers.Seek(t.Context(), operator, "mails", feed.Now(), "", "")
		},
		"remove": func() error { return subscribers.Remove(t.Context(), operator, "mails", "", "") },
	} {
		if err := act(); !errors.Is(err, feed.ErrSubscriberBusy) || !pgerr.Is(err, pgerr.LockNotAvailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(release)
	if err := subscribers.Remove(t.Context(), operator, "mails", "", ""); err != nil {
		t.Error(err)
	}
}

// Several processes of one name call Receive for each page in one of them alone, however long it takes, also when they
// begin at the same time or while it runs. A pause ends the context of the one that runs.
func TestReceiveRunsInOneProcess(t *testing.T) {
	s := newSubscribers(t)
	s.enqueue("coupon.send", "a-", 4)
	var running, most, handled atomic.Int64
	began, ended := make(chan struct{}, 100), make(chan struct{})
	var isLast atomic.Bool
	c := outbox.Subscription{Name: "mails", PageSize: 1, Idle: 5 * time.Millisecond, Standby: time.Second,
		Receive: func(ctx context.Context, events []ledger.Event) error {
			if events[0].Kind != "coupon.send" {
				return nil
			}
			n := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			began <- struct{}{}
			if isLast.Load() {
				<-ctx.Done()
				close(ended)
				return ctx.Err()
			}
			time.Sleep(2200 * time.Millisecond) // more than two of Standby
			handled.Add(1)
			return nil
		}}
	s.startWith(c)
	s.startWith(c)
	<-began
	s.startWith(c)
	s.await("all are handled", func() bool {
		all, err := feed.Subscribers(t.Context(), s.db, "mails")
		return err == nil && len(all) == 1 && all[0].Lag == 0
	})
	if most.Load() != 1 || handled.Load() != 4 {
		t.Errorf("%d processes handled at the same time, and handled %d events, want 4", most.Load(), handled.Load())
	}
	isLast.Store(true)
	s.enqueue("coupon.send", "b-", 1)
	s.await("the last one is being handled", func() bool { return running.Load() == 1 })
	operator := ledgertest.As(t, s.pool, "operator")
	if err := subscribers.Pause(t.Context(), operator, "mails", true, "", ""); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("Receive goes on after a pause")
	}
}
