package ledger

import (
	"encoding/hex"
	"fmt"
)

// TraceContext is where in which trace something was done: a W3C traceparent, taken apart, and the
// tracestate beside it. Its fields have the types of OpenTelemetry's trace.TraceID, trace.SpanID and
// trace.TraceFlags; trace.ParseTraceState reads State.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte   // the lowest bit says that the trace is sampled
	State   string // W3C tracestate, shortened as W3C asks; "" if there is none
}

// traceparentLen is the length of a traceparent, of every version there is.
const traceparentLen = len("00-00000000000000000000000000000000-0000000000000000-00")

// ParseTraceparent reads a W3C traceparent, as [Meta] has one. It returns an [*InvalidError] if it is
// none, or one that says that there is no trace.
func ParseTraceparent(text string) (TraceContext, error) {
	var c TraceContext
	var version, flags [1]byte
	rest, ok := text, len(text) == traceparentLen
	for i, into := range [][]byte{version[:], c.TraceID[:], c.SpanID[:], flags[:]} {
		ok = ok && (i == 0 || rest[0] == '-')
		if !ok {
			break
		}
		if i > 0 {
			rest = rest[1:]
		}
		ok = fromLowerHex(into, rest)
		rest = rest[2*len(into):]
	}
	if !ok || version[0] == 0xff || c.TraceID == [16]byte{} || c.SpanID == [8]byte{} {
		return TraceContext{}, &InvalidError{Field: "traceparent", Value: text, Rule: "must be <version>-<trace id>-<span id>-<flags> in lower-case hex, the ids not all zero"}
	}
	c.Flags = flags[0]
	return c, nil
}

// fromLowerHex decodes the beginning of a text.
func fromLowerHex(into []byte, text string) bool {
	digits := text[:2*len(into)]
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(into, []byte(digits))
	return err == nil
}

// String returns the traceparent, of version 00.
func (c TraceContext) String() string {
	return fmt.Sprintf("00-%x-%x-%02x", c.TraceID, c.SpanID, c.Flags)
}
