package ledger

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// TraceContext is where in which trace something was done: a W3C traceparent, taken apart, and the
// tracestate beside it. Its fields have the types of OpenTelemetry's trace.TraceID, trace.SpanID and
// trace.TraceFlags; trace.ParseTraceState reads State.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte   // the lowest bit says that the trace is sampled
	State   string // W3C tracestate, as [PassTracestate] returns it; "" if there is none
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

// The limits of a tracestate. What is passed on of a longer one is what W3C asks everybody to pass on.
const (
	MaxTracestateBytes = 512

	maxTracestateMembers = 32
	maxTracestateKey     = 256
	maxTracestateValue   = 256
	longTracestateMember = 128 // those that are longer go first
)

// PassTracestate returns what is passed on of a W3C tracestate: its members in their order, <key>=<value>,
// with commas and nothing else between them. If they are longer than [MaxTracestateBytes], those of
// more than 128 bytes are left out first, the last one first, and then the others in the same way.
// It returns "" for a tracestate that is malformed: with a member that has not that form, a key
// twice, or more than 32 members.
func PassTracestate(text string) string {
	var members []string
	size := -1 // commas stand between members only
	for member := range strings.SplitSeq(text, ",") {
		member = strings.Trim(member, " \t")
		if member == "" {
			continue // W3C allows it
		}
		key, value, _ := strings.Cut(member, "=")
		twice := slices.ContainsFunc(members, func(m string) bool { return strings.HasPrefix(m, key+"=") })
		if twice || len(members) == maxTracestateMembers || !isTracestateKey(key) || !isTracestateValue(value) {
			return ""
		}
		members = append(members, member)
		size += len(member) + len(",")
	}
	for size > MaxTracestateBytes {
		last := len(members) - 1
		for i, m := range members {
			if len(m) > longTracestateMember {
				last = i
			}
		}
		size -= len(members[last]) + len(",")
		members = slices.Delete(members, last, last+1)
	}
	return strings.Join(members, ",")
}

func isTracestateKey(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (i == 0 || !strings.ContainsRune("_-*/@", rune(c))) {
			return false
		}
	}
	return s != "" && len(s) <= maxTracestateKey
}

// isTracestateValue takes a value that is trimmed at its end, and ended by a comma.
func isTracestateValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '=' {
			return false
		}
	}
	return s != "" && len(s) <= maxTracestateValue
}

// String returns the traceparent, of version 00.
func (c TraceContext) String() string {
	return fmt.Sprintf("00-%x-%x-%02x", c.TraceID, c.SpanID, c.Flags)
}
