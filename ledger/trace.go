package ledger

import (
	"encoding/hex"
	"fmt"
)

// TraceContext is a W3C trace context: the parts of a traceparent, and a tracestate. Its fields convert to
// trace.TraceID, trace.SpanID and trace.TraceFlags of OpenTelemetry, and trace.ParseTraceState parses State.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte   // the lowest bit is set if the trace is sampled
	State   string // the tracestate, shortened as W3C specifies; may be empty
}

// traceparentLen is the length of a traceparent, in bytes.
const traceparentLen = len("00-00000000000000000000000000000000-0000000000000000-00")

// ParseTraceparent parses a W3C traceparent such as [Meta].Traceparent. State of the result is "". It returns
// an [*InvalidError] if text is not a traceparent, or its trace ID or span ID is zero.
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
		ok = decodeLowerHex(into, rest)
		rest = rest[2*len(into):]
	}
	if !ok || version[0] == 0xff || c.TraceID == [16]byte{} || c.SpanID == [8]byte{} {
		rule := "must be <version>-<trace id>-<span id>-<flags> in lower-case hex, with IDs that are not zero"
		return TraceContext{}, &InvalidError{Field: "traceparent", Value: text, Rule: rule}
	}
	c.Flags = flags[0]
	return c, nil
}

// decodeLowerHex decodes the beginning of text into into and reports whether it is lower-case hex.
func decodeLowerHex(into []byte, text string) bool {
	digits := text[:2*len(into)]
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(into, []byte(digits))
	return err == nil
}

// String returns c as a traceparent of version 00.
func (c TraceContext) String() string {
	return fmt.Sprintf("00-%x-%x-%02x", c.TraceID, c.SpanID, c.Flags)
}
