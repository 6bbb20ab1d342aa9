package copies

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// A message of the stream that another user's consumer delivers to the subject of claims is not a claim, even if the
// args of its task have the form of one. Otherwise a producer could end the relay.
func TestDeliveredMessageIsNotAClaim(t *testing.T) {
	const body = `{"installation":"1","run":"2","holder":"other"}`
	for _, test := range []struct {
		name string
		msg  *nats.Msg
		is   bool
	}{
		{name: "of a relay", msg: &nats.Msg{Data: []byte(body)}, is: true},
		{name: "with a reply subject", msg: &nats.Msg{Data: []byte(body), Reply: "$JS.ACK.LEDGER.evil.1.1.1.1.1.4"}},
		{name: "with headers", msg: &nats.Msg{Data: []byte(body), Header: nats.Header{"ce-id": {"a/b/1"}}}},
		{name: "without a body", msg: &nats.Msg{}},
	} {
		if _, is := parse(test.msg); is != test.is {
			t.Errorf("a message %s: %v", test.name, is)
		}
	}
}
