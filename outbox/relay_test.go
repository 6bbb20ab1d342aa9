package outbox_test

import (
	"strconv"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

func TestRelayPublishesEverything(t *testing.T) {
	b := newBundle(t)
	b.enqueue("coupon.send", "before-", 1500)
	b.relay()
	b.enqueue("coupon.send", "after-", 300)
	key := ledger.Key{Kind: "coupon.send", BizID: "before-0"}
	b.append(key, 1, ledger.EventStarted)
	b.append(key, 2, ledger.EventInterrupted)
	b.append(key, 3, ledger.EventSucceeded)
	b.awaitPublished()
	if got := len(b.check()); got != 1803 {
		t.Errorf("%d messages on the stream, want 1803", got)
	}
}

func orderKey(i int) ledger.Key {
	return ledger.Key{Kind: "coupon.send", BizID: ledger.BizID("order-" + strconv.Itoa(i))}
}
