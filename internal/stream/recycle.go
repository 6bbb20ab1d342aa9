package stream

import (
	"sync"

	"github.com/nats-io/nats.go"
)

// plainHeaders is how many headers every message has.
const plainHeaders = 10

// published holds messages whose headers can be written anew: making a map of so many costs more
// than all the rest of a message.
var published sync.Pool

// blank returns a message that has no headers, or those of another one that Encode has.
func blank() *nats.Msg {
	m, _ := published.Get().(*nats.Msg)
	if m == nil {
		return &nats.Msg{Header: make(nats.Header, plainHeaders+1)}
	}
	return m
}

// Recycle gives back a message that [Encode] returned and that was published: nobody may use it,
// or its headers, any more.
func Recycle(m *nats.Msg) {
	if len(m.Header) > plainHeaders {
		delete(m.Header, headerEnvelope)
		delete(m.Header, headerFinishBy)
		delete(m.Header, headerTracestate)
	}
	*m = nats.Msg{Header: m.Header}
	published.Put(m)
}
