package outbox_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A dump is restored beside its original, rebased without an installation of its own, and gets services on the same
// NATS. Its relay refuses before it touches the stream, with the command in the error; its workers do not begin; and
// the original works on without a loss.
func TestRebasedCopyLeavesTheStream(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	original := newBundleOn(t, openPool(t, server.URL(ledgertest.Database)), natsserver.Config{})
	original.relay(smallPages)
	original.enqueue("coupon.send", "order-", 300)
	original.awaitPublished()
	before := original.state()

	dump := tool(t, server, nil, "pg_dump", server.URL(ledgertest.Database))
	tool(t, server, nil, "psql", server.URL("postgres"), "-qc", "create database copy")
	tool(t, server, dump, "psql", server.URL("copy"), "-qo", "/dev/null", "-v", "ON_ERROR_STOP=1")
	pool := openPool(t, server.URL("copy"))
	if needed, err := feed.Rebase(t.Context(), pool, nil); err != nil || !needed {
		t.Fatalf("rebase: %t, %v", needed, err)
	}
	restored := &bundle{t: t, pool: pool}
	restored.nc, restored.js = original.connect()
	restored.enqueue("coupon.send", "copied-", 10)
	var isRelayed bool
	if err := pool.QueryRow(t.Context(), "select taskledger.is_relayed_here()").Scan(&isRelayed); err != nil {
		t.Fatal(err)
	}
	if isRelayed {
		t.Error("workers of the copy begin")
	}
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
