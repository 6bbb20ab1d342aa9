package outbox_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// restoreBeside returns a ledger with a relay, and a dump of it that was restored and rebased without an installation
// of its own, on the same NATS.
func restoreBeside(t *testing.T) (original, restored *bundle, relay *running) {
	t.Helper()
	server := ledgertest.Cluster(t, nil)
	original = newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	relay = original.relay(smallPages)
	original.enqueue("coupon.send", "order-", 300)
	original.awaitPublished()

	dump := tool(t, server, nil, "pg_dump", server.URL(ledgertest.Database))
	tool(t, server, nil, "psql", server.URL("postgres"), "-qc", "create database copy")
	tool(t, server, dump, "psql", server.URL("copy"), "-qo", "/dev/null", "-v", "ON_ERROR_STOP=1")
	pool := openPool(t, server.URL("copy"))
	if needed, err := feed.Rebase(t.Context(), pool, nil); err != nil || !needed {
		t.Fatalf("rebase: %t, %v", needed, err)
	}
	restored = &bundle{t: t, pool: pool}
	restored.nc, restored.js = original.connect()
	restored.enqueue("coupon.send", "copied-", 10)
	return original, restored, relay
}

// A dump is restored beside its original, rebased without an installation of its own, and gets services on the same
// NATS. Its relay refuses before it touches the stream, with the command in the error; its workers do not begin; and
// the original works on without a loss.
func TestRebasedCopyLeavesTheStream(t *testing.T) {
	t.Parallel()
	original, restored, _ := restoreBeside(t)
	before := original.state()
	refused := awaitError[*outbox.CopyError](t, restored.relay(smallPages))
	if !strings.Contains(refused.Error(), "--new-installation") {
		t.Errorf("the error has not the command: %v", refused)
	}
	if after := original.state(); after.LastSeq != before.LastSeq || after.Msgs != before.Msgs {
		t.Errorf("the stream before: %+v, after: %+v", before, after)
	}
	original.enqueue("coupon.send", "after-", 10)
	original.awaitPublished()
	if original.generation() != 1 {
		t.Error("the original has lost messages")
	}
	original.check()
}

// The only relay of the original restarts. A copy that it has refused tries again meanwhile: it finds messages that
// were recorded after its rebase, which only a database that works has, and leaves the stream as it is. Once an
// operator has the stream rebuilt in the copy, the copy takes its place.
func TestRefusedCopyStaysRefused(t *testing.T) {
	t.Parallel()
	original, restored, relay := restoreBeside(t)
	limit := original.stream().CachedInfo().Config.MaxBytes
	higher := func(c *outbox.Config) { c.Stream.MaxBytes = 2 * limit }
	awaitError[*outbox.CopyError](t, restored.relay(smallPages, higher))
	if got := original.stream().CachedInfo().Config.MaxBytes; got != limit {
		t.Errorf("the copy has set the limit of the stream from %d to %d bytes", limit, got)
	}
	original.enqueue("coupon.send", "later-", 10)
	original.awaitPublished()
	relay.end()
	before := original.state()
	_, err := restored.pool.Exec(t.Context(), // the clocks of both may differ
		"update taskledger.floor set raised_at = clock_timestamp() - interval '1 hour' where raised_at is not null")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		awaitError[*outbox.ForeignWriterError](t, restored.relay(smallPages, higher))
	}
	if s := restored.status().Relay; s == nil || !s.Refused {
		t.Errorf("the status of the copy: %+v", s)
	}
	if after := original.state(); after.LastSeq != before.LastSeq || after.Msgs != before.Msgs {
		t.Errorf("the stream before: %+v, after: %+v", before, after)
	}
	relay = original.relay(smallPages)
	original.enqueue("coupon.send", "after-", 10)
	original.awaitPublished()
	original.check()
	relay.end()

	if err := relays.RebuildStream(t.Context(), restored.pool, restored.js, nil); err != nil {
		t.Fatal(err)
	}
	restored.relay(smallPages)
	restored.awaitPublished()
	restored.check()
}

// A copy has worked on another NATS, and then gets the NATS of its original. Its relay refuses before it touches the
// stream, also if its server has run for longer than that of the original.
func TestCopyOfAnotherNATSLeavesTheStream(t *testing.T) {
	t.Parallel()
	original, restored, relay := restoreBeside(t)
	relay.end()
	elsewhere := newBundleOn(t, restored.pool, natsserver.Config{})
	there := elsewhere.relay(smallPages)
	elsewhere.awaitPublished()
	there.end()
	original.relay(smallPages)
	original.enqueue("coupon.send", "before-", 10)
	original.awaitPublished()

	before := original.state()
	awaitError[*outbox.CopyError](t, restored.relay(smallPages))
	if after := original.state(); after.LastSeq != before.LastSeq || after.Msgs != before.Msgs {
		t.Errorf("the stream before: %+v, after: %+v", before, after)
	}
	original.enqueue("coupon.send", "after-", 10)
	original.awaitPublished()
	if original.generation() != 1 {
		t.Error("the original has lost messages")
	}
	original.check()
}
