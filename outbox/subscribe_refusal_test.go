package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// wantEnd returns the error with which a subscriber ends by itself.
func (s *readers) wantEnd(ended <-chan error) error {
	s.t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		s.t.Fatal("the subscriber does not end")
		return nil
	}
}

// A subscriber ends with an error that names the cause if its login lacks the role, or does not own it.
func TestSubscriberWithoutRightsEnds(t *testing.T) {
	s := newSubscribers(t)
	s.enqueue("coupon.send", "a-", 3)
	_, ended := s.start(outbox.Subscription{Name: "mails", Handle: toTable, DB: ledgertest.As(t, s.pool, "reader")})
	if err := s.wantEnd(ended); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("without the role it ended with %v", err)
	}
	stop, ended := s.start(outbox.Subscription{Name: "mails", Handle: toTable})
	s.wantEach(3)
	stop()
	if err := s.wantEnd(ended); err != nil {
		t.Fatal(err)
	}
	_, ended = s.start(outbox.Subscription{Name: "mails", Handle: toTable,
		DB: ledgertest.As(t, s.pool, "subscriber", "reader")})
	var owner *outbox.SubscriberOwnerError
	if err := s.wantEnd(ended); !errors.As(err, &owner) || owner.Login != s.db.Config().ConnConfig.User {
		t.Errorf("with the subscriber of another login it ended with %v", err)
	}
}

// A new subscriber whose From is the position of no event ends, since another attempt cannot change that. One that
// exists does not read its From.
func TestSubscriberFromUnknownPositionEnds(t *testing.T) {
	s := newSubscribers(t)
	s.enqueue("coupon.send", "a-", 3)
	from := outbox.StartAfter(99_999)
	_, ended := s.start(outbox.Subscription{Name: "mails", Handle: toTable, From: from})
	if err := s.wantEnd(ended); !errors.Is(err, ledger.ErrUnknownPosition) {
		t.Fatalf("it ended with %v", err)
	}
	stop, ended := s.start(outbox.Subscription{Name: "mails", Handle: toTable})
	s.wantEach(3)
	stop()
	if err := s.wantEnd(ended); err != nil {
		t.Fatal(err)
	}
	s.start(outbox.Subscription{Name: "mails", Handle: toTable, From: from})
	s.enqueue("coupon.send", "b-", 3)
	s.wantEach(6)
}

// An error of a handler is retried, also if it is one that would end the subscriber, such as a missing table of the
// user. An operator moves the subscriber past the events that fail.
func TestSubscriberIsMovedPastFailures(t *testing.T) {
	for name, isExact := range map[string]bool{"AtLeastOnce": false, "ExactlyOnce": true} {
		t.Run(name, func(t *testing.T) {
			s := newSubscribers(t)
			s.enqueue("coupon.send", "bad-", 1)
			failed, passed := make(chan struct{}, 1000), make(chan struct{}, 1000)
			handle := func(events []ledger.Event) error {
				if events[0].BizID == "bad-0" {
					failed <- struct{}{}
					_, err := s.pool.Exec(t.Context(), "select from a_table_that_is_missing")
					return err
				}
				passed <- struct{}{}
				return nil
			}
			c := outbox.Subscription{Name: "mails", PageSize: 1}
			if isExact {
				c.Handle = func(_ context.Context, _ pgx.Tx, events []ledger.Event) error { return handle(events) }
			} else {
				c.Receive = func(_ context.Context, events []ledger.Event) error { return handle(events) }
			}
			s.start(c)
			<-failed
			<-failed
			if err := feed.Seek(t.Context(), ledgertest.As(t, s.pool, "operator"), "mails", feed.Now()); err != nil {
				t.Fatal(err)
			}
			s.enqueue("coupon.send", "good-", 1)
			select {
			case <-passed:
			case <-time.After(patience):
				t.Error("the subscriber still handles the events that it was moved past")
			}
		})
	}
}

// A handler that ends its transaction, or continues one that has failed, gets the same events again, also if they are
// the last ones.
func TestHandlerEndsItsTransaction(t *testing.T) {
	for name, sql := range map[string]string{
		"Rollback": "rollback", "Commit": "commit", "Failed": "select from a_table_that_is_missing",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubscribers(t)
			s.enqueue("coupon.send", "a-", 3)
			isFirst := true
			s.start(outbox.Subscription{Name: "mails", Idle: 5 * time.Millisecond,
				Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
					if isFirst {
						isFirst = false
						if name == "Commit" { // with the place of the subscriber
							if err := toTable(ctx, tx, events); err != nil {
								return err
							}
						}
						_, _ = tx.Exec(ctx, sql)
						return nil
					}
					return toTable(ctx, tx, events)
				}})
			s.wantEach(3)
		})
	}
}
