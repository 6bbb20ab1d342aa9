package stream

import (
	"strconv"

	"github.com/nats-io/nats.go"
)

// Expect makes the stream refuse each message whose expected last sequence is wrong: last for the first message, and
// one more for each later message.
func Expect(msgs []*nats.Msg, last uint64) {
	const digits = 20
	text := make([]byte, 0, len(msgs)*digits)
	ends := make([]int, len(msgs))
	for i := range msgs {
		text = strconv.AppendUint(text, last+uint64(i), 10)
		ends[i] = len(text)
	}
	all, values, start := string(text), make([]string, len(msgs)), 0
	for i, m := range msgs {
		values[i], start = all[start:ends[i]], ends[i]
		m.Header[nats.ExpectedLastSeqHdr] = values[i : i+1 : i+1]
	}
}

// ExpectSize returns the number of bytes that [Expect] adds to a message, for sequences up to last.
func ExpectSize(last uint64) int64 {
	return int64(len(nats.ExpectedLastSeqHdr) + separator + len(strconv.FormatUint(last, 10)))
}

// PayloadSize returns how many bytes of a message with this [Size] count against max_payload of the server.
func PayloadSize(m *nats.Msg, size int64) int64 { return size - record - int64(len(m.Subject)) }
