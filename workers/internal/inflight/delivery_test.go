package inflight_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/workers/internal/inflight"
)

type parsed struct {
	inflight.Delivery
	inflight.Source
}

func TestParseDelivery(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]parsed{
		"$JS.ACK.LEDGER.test~order.3.42.7.1700000000000000000.0": {
			inflight.Delivery{Sequence: 42, Count: 3}, inflight.Source{Stream: "LEDGER", Durable: "test~order"},
		},
		"$JS.ACK.hub.ACC.LEDGER.test~order.3.42.7.1700000000000000000.0.x7": {
			inflight.Delivery{Sequence: 42, Count: 3}, inflight.Source{Stream: "LEDGER", Durable: "test~order"},
		},
		"$JS.ACK._.ACC.LEDGER.test~order.1.1.1.1700000000000000000.12345.more": {
			inflight.Delivery{Sequence: 1, Count: 1}, inflight.Source{Stream: "LEDGER", Durable: "test~order"},
		},
	} {
		want.Reply = reply
		if d, from, err := inflight.ParseDelivery(reply); err != nil || (parsed{d, from}) != want {
			t.Errorf("%s: %+v, %+v, %v", reply, d, from, err)
		}
	}
	for _, reply := range []string{
		"", "$JS.ACK.LEDGER", "$JS.ACK.a.b.x.1.1.1.1", "_INBOX.a.b.c.d.1.1.1.1", "$JS.ACK.a.b.1.1.1.1.1.1",
	} {
		if got, _, err := inflight.ParseDelivery(reply); err == nil {
			t.Errorf("%q was taken: %+v", reply, got)
		}
	}
}

func FuzzParseDelivery(f *testing.F) {
	f.Add("LEDGER", "test~order", uint64(1), uint64(2), "$JS.ACK....")
	f.Fuzz(func(t *testing.T, stream, consumer string, count, sequence uint64, arbitrary string) {
		_, _, _ = inflight.ParseDelivery(arbitrary) // does not panic
		if strings.Contains(stream+consumer, ".") {
			return
		}
		reply := fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.1.1.1", stream, consumer, count, sequence)
		d, from, err := inflight.ParseDelivery(reply)
		if err != nil || d != (inflight.Delivery{Reply: reply, Sequence: sequence, Count: count}) ||
			from != (inflight.Source{Stream: stream, Durable: consumer}) {
			t.Errorf("%s: %+v, %+v, %v", reply, d, from, err)
		}
	})
}
