package stream

import (
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// plainNames are the headers of every message, in the order of their values.
var plainNames = [...]string{headerSpecVersion, headerID, headerType, headerSource, headerSubject, headerTime,
	headerTask}

// plainValues are the values of plainNames.
type plainValues [len(plainNames)]string

// published contains messages whose headers can be reused: making a map of this size costs more than the rest of a
// message.
var published sync.Pool

// blank returns a message with the plain headers only, and their values, which Encode sets. The map of a recycled
// message stays unchanged: its lists of values are parts of one array, which begins with the first of them.
func blank() (*nats.Msg, *plainValues) {
	if m, _ := published.Get().(*nats.Msg); m != nil {
		first := m.Header[headerSpecVersion]
		return m, (*plainValues)(first[:len(plainNames)])
	}
	m, values := &nats.Msg{Header: make(nats.Header, len(plainNames))}, &plainValues{}
	for i, name := range plainNames {
		m.Header[name] = values[i : i+1 : i+1]
	}
	m.Header[headerSpecVersion] = values[:1]
	return m, values
}

// Recycle takes back a message that [Encode] returned and that was published. The caller must not use it or
// its headers afterwards, and must not have changed the headers that Encode made.
func Recycle(m *nats.Msg) {
	if len(m.Header) > len(plainNames) {
		maps.DeleteFunc(m.Header, func(name string, _ []string) bool { return !slices.Contains(plainNames[:], name) })
	}
	*m = nats.Msg{Header: m.Header}
	published.Put(m)
}
