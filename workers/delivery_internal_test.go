package workers

import (
	"fmt"
	"strings"
	"testing"
)

func TestNewDelivery(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]delivery{
		"$JS.ACK.LEDGER.test~order.3.42.7.1700000000000000000.0":               {stream: "LEDGER", durable: "test~order", sequence: 42, count: 3},
		"$JS.ACK.hub.ACC.LEDGER.test~order.3.42.7.1700000000000000000.0.x7":    {stream: "LEDGER", durable: "test~order", sequence: 42, count: 3},
		"$JS.ACK._.ACC.LEDGER.test~order.1.1.1.1700000000000000000.12345.more": {stream: "LEDGER", durable: "test~order", sequence: 1, count: 1},
	} {
		want.reply = reply
		if got, err := newDelivery(reply); err != nil || got != want {
			t.Errorf("%s: %+v, %v", reply, got, err)
		}
	}
	for _, reply := range []string{"", "$JS.ACK.LEDGER", "$JS.ACK.a.b.x.1.1.1.1", "_INBOX.a.b.c.d.1.1.1.1", "$JS.ACK.a.b.1.1.1.1.1.1"} {
		if got, err := newDelivery(reply); err == nil {
			t.Errorf("%q was taken: %+v", reply, got)
		}
	}
}

func FuzzNewDelivery(f *testing.F) {
	f.Add("LEDGER", "test~order", uint64(1), uint64(2), "$JS.ACK....")
	f.Fuzz(func(t *testing.T, stream, consumer string, count, sequence uint64, arbitrary string) {
		_, _ = newDelivery(arbitrary) // does not panic
		if strings.Contains(stream+consumer, ".") {
			return
		}
		reply := fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.1.1.1", stream, consumer, count, sequence)
		if d, err := newDelivery(reply); err != nil || d.count != count || d.sequence != sequence || d.stream != stream || d.durable != consumer || d.reply != reply {
			t.Errorf("%s: %+v, %v", reply, d, err)
		}
	})
}
