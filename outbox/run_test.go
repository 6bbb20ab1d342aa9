package outbox_test

import (
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A server that was restarted while the session of a relay used no connection is in another run. The relay notices it,
// and its marks name the new run: a dispatcher that begins waits for that.
func TestRelayNoticesARestart(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.relay()
	b.enqueue("coupon.send", "order-", 10)
	b.awaitPublished()
	ledgertest.ExecAsOwner(t, b.pool, `create or replace function taskledger_internal.server_run() returns text
		language sql stable return 'the run after a restart'`)
	b.enqueue("coupon.send", "late-", 10)
	b.awaitPublished()
	b.await("a mark names the new run", func() (isNamed bool) {
		err := b.pool.QueryRow(t.Context(), `select server = 'the run after a restart'
			from taskledger_internal.relay_mark order by n desc limit 1`).Scan(&isNamed)
		return err == nil && isNamed
	})
	b.checkOnce()
}
