package workers

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
)

// arrival is a message that was just delivered.
type arrival struct {
	msg      stream.Message
	delivery delivery
}

// delivery is one delivery of a message: where to answer, and which one it is.
type delivery struct {
	reply    string
	stream   string
	durable  string // the consumer
	sequence uint64 // of the message in the stream
	count    uint64 // how often the message was delivered, this time included
}

// The ways to answer a delivery.
var (
	ackAnswer      = stream.AckAnswer
	progressAnswer = stream.ProgressAnswer
	nakAnswer      = stream.NakAnswer
	nakAfter       = stream.NakAfter
	termAnswer     = stream.TermAnswer
)

// newDelivery reads a reply subject of JetStream:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
//	$JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.<sequence>.…
func newDelivery(reply string) (delivery, error) {
	tokens := strings.Count(reply, ".") + 1
	skip := 4
	if tokens >= 11 {
		skip = 6
	}
	if tokens < 9 || tokens == 10 || !strings.HasPrefix(reply, "$JS.ACK.") {
		return delivery{}, fmt.Errorf("no reply subject of JetStream: %q", reply)
	}
	rest := reply
	for range skip - 2 {
		_, rest, _ = strings.Cut(rest, ".")
	}
	source, rest, _ := strings.Cut(rest, ".")
	durable, rest, _ := strings.Cut(rest, ".")
	delivered, rest, _ := strings.Cut(rest, ".")
	sequence, _, _ := strings.Cut(rest, ".")
	count, err1 := strconv.ParseUint(delivered, 10, 64)
	seq, err2 := strconv.ParseUint(sequence, 10, 64)
	if err1 != nil || err2 != nil {
		return delivery{}, fmt.Errorf("no reply subject of JetStream: %q", reply)
	}
	return delivery{reply: reply, stream: source, durable: durable, sequence: seq, count: count}, nil
}

// answer sends an answer. It does not fail: one that is lost means that the message comes again,
// and then the head decides.
func answer(nc *nats.Conn, d delivery, text []byte) { _ = nc.Publish(d.reply, text) }
