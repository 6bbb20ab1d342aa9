package stream

import (
	"sync"

	"github.com/nats-io/nats.go"
)

// plainHeaders is the number of headers of every message.
const plainHeaders = 10

// published has messages whose headers can be reused: making a map of this size costs more than the rest of a
// message.
var published sync.Pool

// blank returns a message without headers, or with those of a recycled one, all of which Encode sets.
func blank() *nats.Msg {
	m, _ := published.Get().(*nats.Msg)
	if m == nil {
		return &nats.Msg{Header: make(nats.Header, plainHeaders+1)}
	}
	return m
}

// Recycle takes back a message that [Encode] returned and that was published. The caller must not use it or
// its headers afterwards.
func Recycle(m *nats.Msg) {
	if len(m.Header) > plainHeaders {
		delete(m.Header, headerEnvelope)
		delete(m.Header, headerFinishBy)
		delete(m.Header, headerTracestate)
	}
	*m = nats.Msg{Header: m.Header}
	published.Put(m)
}
