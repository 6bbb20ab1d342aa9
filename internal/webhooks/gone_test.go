package webhooks_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A receiver that has answered 410 Gone and is then removed, as docs/webhooks.md describes it, has no condition.
func TestRemovedReceiverHasNoCondition(t *testing.T) {
	h := newHooks(t)
	gone := newReceiver(t)
	gone.status, gone.failures = http.StatusGone, 1<<30
	ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: "1"}, `{}`)
	stop := h.start(webhooks.Receiver{Name: "gone", Endpoint: endpoint(gone.server.URL)})
	h.Await("the receiver is paused", func() bool { return strings.Contains(h.conditions()["gone"], "410 Gone") })
	stop()
	if text := h.conditions()["gone"]; !strings.Contains(text, "410 Gone") {
		t.Errorf("while it has a subscriber: %q", text)
	}
	if err := subscribers.Remove(t.Context(), h.As("operator"), "webhook-gone", "", ""); err != nil {
		t.Fatal(err)
	}
	if text := h.conditions()["gone"]; text != "" {
		t.Errorf("after it was removed: %s", text)
	}
}
