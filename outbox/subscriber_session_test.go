package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// Settings that Handle makes for its session end with its transaction, whether it commits or fails: the
// connection is used for other pages, and for whatever else the program does.
func TestSessionOfASubscriberEndsWithItsPage(t *testing.T) {
	s := newSubscribers(t)
	s.enqueue("coupon.send", "A", 6)
	var found []string
	stop, done := s.start(outbox.Subscription{
		Name: "coupons", PageSize: 2,
		Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
			var state string
			err := tx.QueryRow(ctx, `select concat_ws(' ', current_setting('work_mem'), current_setting('search_path'),
				(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()))`).Scan(&state)
			if err != nil {
				return err
			}
			found = append(found, state)
			if err := toTable(ctx, tx, events); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "set work_mem = '123kB'; select pg_advisory_lock(7); set search_path = nowhere")
			if err != nil {
				return err
			}
			if len(found) == 1 {
				return errors.New("the first attempt")
			}
			return nil
		},
	})
	s.wantEach(6)
	stop()
	<-done
	for _, state := range found {
		if state != found[0] {
			t.Errorf("a page begins with %s, the first one with %s", state, found[0])
		}
	}
	if len(found) < 4 {
		t.Errorf("%d calls: this proves nothing", len(found))
	}
}
