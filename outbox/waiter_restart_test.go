package outbox_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// PostgreSQL is killed and starts again under waits: one ends by the message of the outcome that follows, and one
// without a message by a poll.
func TestWaitsLastThroughAKilledPostgreSQL(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	b := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	nc, _ := b.connect()
	relay := b.relay()
	keys := []ledger.Key{waitKey("a"), waitKey("b")}
	b.enqueueKey(keys...)
	messages, polls := b.waiter(nc, longPoll), b.waiter(nc, 50*time.Millisecond)
	byMessage, byPoll := b.wait(messages, ledger.UntilAll, keys[0]), b.wait(polls, ledger.UntilAll, keys[1])
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // a few polls fail
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.finishAnew(keys[0])
	if r := b.end(byMessage); r.err != nil || r.tasks[0].State != ledger.StateSucceeded {
		t.Errorf("by its message: %+v", r)
	}
	relay.end()
	b.finishAnew(keys[1])
	if r := b.end(byPoll); r.err != nil || r.tasks[0].State != ledger.StateSucceeded {
		t.Errorf("by a poll: %+v", r)
	}
}
