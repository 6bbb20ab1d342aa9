package inflight

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// Arrival is a message that was just delivered.
type Arrival struct {
	Message  stream.Message
	Delivery Delivery
}

// Delivery is one delivery of a message.
type Delivery struct {
	Reply    string // subject of the answer
	Sequence uint64 // of the message in the stream
	Count    uint64 // how often the message was delivered, including this delivery
}

// Source is where a delivery comes from.
type Source struct {
	Stream  string
	Durable string // consumer
}

// ParseDelivery reads a reply subject of JetStream:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
//	$JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.<sequence>.…
//
// nats.go reads the same only for a message that is bound to a subscription.
func ParseDelivery(reply string) (Delivery, Source, error) {
	tokens := strings.Count(reply, ".") + 1
	skip := 4
	if tokens >= 11 {
		skip = 6
	}
	if tokens < 9 || tokens == 10 || !strings.HasPrefix(reply, "$JS.ACK.") {
		return Delivery{}, Source{}, fmt.Errorf("not a reply subject of JetStream: %q", reply)
	}
	rest := reply
	for range skip - 2 {
		_, rest, _ = strings.Cut(rest, ".")
	}
	name, rest, _ := strings.Cut(rest, ".")
	durable, rest, _ := strings.Cut(rest, ".")
	delivered, rest, _ := strings.Cut(rest, ".")
	sequence, _, _ := strings.Cut(rest, ".")
	count, err1 := strconv.ParseUint(delivered, 10, 64)
	seq, err2 := strconv.ParseUint(sequence, 10, 64)
	if err1 != nil || err2 != nil {
		return Delivery{}, Source{}, fmt.Errorf("not a reply subject of JetStream: %q", reply)
	}
	return Delivery{Reply: reply, Sequence: seq, Count: count}, Source{Stream: name, Durable: durable}, nil
}

// Answer sends an answer to a delivery: an acknowledgement or another answer of package stream. It does not fail: if
// the answer is lost, the message is redelivered and the head of its task decides.
func Answer(nc *nats.Conn, d Delivery, text []byte) { _ = nc.Publish(d.Reply, text) }
