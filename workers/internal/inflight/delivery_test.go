package inflight_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/workers/internal/inflight"
)

func TestParseDelivery(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]inflight.Delivery{
		"$JS.ACK.LEDGER.test~order.3.42.7.1700000000000000000.0": {
			Stream: "LEDGER", Durable: "test~order", Sequence: 42, Count: 3,
		},
		"$JS.ACK.hub.ACC.LEDGER.test~order.3.42.7.1700000000000000000.0.x7": {
			Stream: "LEDGER", Durable: "test~order", Sequence: 42, Count: 3,
		},
		"$JS.ACK._.ACC.LEDGER.test~order.1.1.1.1700000000000000000.12345.more": {
			Stream: "LEDGER", Durable: "test~order", Sequence: 1, Count: 1,
		},
	} {
		want.Reply = reply
		if got, err := inflight.ParseDelivery(reply); err != nil || got != want {
			t.Errorf("%s: %+v, %v", reply, got, err)
		}
	}
	for _, reply := range []string{
		"", "$JS.ACK.LEDGER", "$JS.ACK.a.b.x.1.1.1.1", "_INBOX.a.b.c.d.1.1.1.1", "$JS.ACK.a.b.1.1.1.1.1.1",
	} {
		if got, err := inflight.ParseDelivery(reply); err == nil {
			t.Errorf("%q was taken: %+v", reply, got)
		}
	}
}

func FuzzParseDelivery(f *testing.F) {
	f.Add("LEDGER", "test~order", uint64(1), uint64(2), "$JS.ACK....")
	f.Fuzz(func(t *testing.T, stream, consumer string, count, sequence uint64, arbitrary string) {
		_, _ = inflight.ParseDelivery(arbitrary) // does not panic
		if strings.Contains(stream+consumer, ".") {
			return
		}
		reply := fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.1.1.1", stream, consumer, count, sequence)
		if d, err := inflight.ParseDelivery(
			reply,
		); err != nil || d.Count != count || d.Sequence != sequence || d.Stream != stream || d.Durable != consumer ||
			d.Reply != reply {
			t.Errorf("%s: %+v, %v", reply, d, err)
		}
	})
}
