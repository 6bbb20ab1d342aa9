package dispatch

import (
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Content is the handler's input in an offer, from the event that made the task available.
type Content struct {
	Type        ledger.EventType
	RecordedAt  time.Time // to the microsecond
	FinishBy    time.Time // the deadline of the whole task; zero: no deadline
	Traceparent string
	Tracestate  string
	Envelope    string // JSON, if the args were published as a Watermill message
	Args        []byte
}

// MarshalBinary returns the content in bytes. It never fails.
func (c Content) MarshalBinary() ([]byte, error) {
	w := newWriter(48 + len(c.Args) + len(c.Envelope) + len(c.Traceparent) + len(c.Tracestate))
	w.text(string(c.Type))
	finish := int64(0)
	if !c.FinishBy.IsZero() {
		finish = c.FinishBy.UnixMicro()
	}
	w.numbers(c.RecordedAt.UnixMicro(), finish)
	w.text(c.Traceparent)
	w.text(c.Tracestate)
	w.text(c.Envelope)
	w.bytes(c.Args)
	return w.b, nil
}

// UnmarshalBinary reads a content. Args are a part of b.
func (c *Content) UnmarshalBinary(b []byte) error {
	in := newReader(b)
	*c = Content{Type: ledger.EventType(in.text()), RecordedAt: time.UnixMicro(in.number()).UTC()}
	if finish := in.number(); finish != 0 {
		c.FinishBy = time.UnixMicro(finish).UTC()
	}
	c.Traceparent, c.Tracestate, c.Envelope, c.Args = in.text(), in.text(), in.text(), in.bytes()
	return in.end("content")
}
