package outbox_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Subscribe returns after its context is done, and its pool can be closed, although a handler ignores its context and
// does not return, or the database does not answer. The events are not passed.
func TestSubscriberStopsBesideWhatHangs(t *testing.T) {
	for name, test := range map[string]struct {
		isReceive, isFrozen bool
	}{
		"Handle":   {},
		"Receive":  {isReceive: true},
		"Database": {isFrozen: true}, // the rollback after Handle
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubscribers(t)
			s.enqueue("coupon.send", "A", 1)
			freezer, db := servicetest.NewFreezer(t, s.db)
			var log logText
			handling, hang := make(chan struct{}), make(chan struct{})
			t.Cleanup(func() { close(hang) })
			wait := func(ctx context.Context) error {
				close(handling)
				if test.isFrozen {
					<-ctx.Done()
					return ctx.Err()
				}
				<-hang
				return nil
			}
			c := outbox.Subscription{DB: db, Name: "coupons", Logger: slog.New(slog.NewTextHandler(&log, nil))}
			if test.isReceive {
				c.Receive = func(ctx context.Context, _ []ledger.Event) error { return wait(ctx) }
			} else {
				c.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
					if err := toTable(ctx, tx, events); err != nil {
						return err
					}
					return wait(ctx)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() {
				err := outbox.Subscribe(ctx, c)
				db.Close()
				ended <- err
			}()
			<-handling
			if test.isFrozen {
				freezer.Freeze()
			}
			stop()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(servicetest.Patience):
				t.Fatal("it does not stop")
			}
			if !log.has("did not return", "subscriber=coupons") {
				t.Errorf("the log has no error:\n%s", log.text.String())
			}
			if n := s.received(); n != 0 {
				t.Errorf("%d events are passed", n)
			}
		})
	}
}
