package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/internal/tracestate"
	"github.com/taskledger/taskledger/ledger"
)

// Names of the headers; see the package comment.
const (
	headerSpecVersion = "ce-specversion"
	headerID          = "ce-id"
	headerType        = "ce-type"
	headerSource      = "ce-source"
	headerSubject     = "ce-subject"
	headerTime        = "ce-time"
	headerTask        = "ce-task"
	headerFinishBy    = "ce-taskfinishby"
	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"
	headerEnvelope    = "watermill"
)

// Members of headerTask, which is one header, since a map of more than eight costs a publisher and a subscriber in Go
// twice as much.
const (
	memberVersion  = "version"
	memberAttempt  = "attempt"
	memberPosition = "position"
)

// MetaEnvelope is the member of a task's meta that becomes a header of each message with the task's args. It contains
// the parts of a Watermill message other than its payload, see internal/envelope.
const MetaEnvelope = headerEnvelope

// metaFinishBy is the member of a task's meta with the deadline of the whole task.
const metaFinishBy = "finish_by"

// TypePrefix precedes the type of an event in its CloudEvents type.
const TypePrefix = "taskledger."

const (
	sourcePrefix = "taskledger/"

	// timeLayout is RFC 3339 to the microsecond.
	timeLayout = "2006-01-02T15:04:05.999999Z07:00"
)

// ErrMalformed is returned for a message that Encode did not make.
var ErrMalformed = errors.New("malformed message")

func malformed(what, value string) error {
	if len(value) > 80 {
		value = value[:80] + "…"
	}
	return fmt.Errorf("%w: %s %s", ErrMalformed, what, strconv.QuoteToASCII(value))
}

// Message is an event as subscribers receive it. A worker makes one of each task that is offered to it.
type Message struct {
	ledger.Key
	Version     ledger.Version
	Attempt     ledger.Attempt
	Position    ledger.Position
	Shard       ledger.Shard
	Type        ledger.EventType
	RecordedAt  time.Time // to the microsecond, UTC
	Source      string    // Source(installation) of its ledger
	Traceparent string    // W3C trace context, or ""
	Tracestate  string    // of the same trace, as the producer passed it on
	Payload     []byte    // args if the message makes a task available, else the event's data
	FinishBy    time.Time // the deadline of the whole task, by the database's clock; zero: no deadline
	Envelope    string    // JSON, if Payload is args that were published as a Watermill message
}

// ID returns the id of the message's event, as [ledger.Event.ID] does.
func (m Message) ID() string {
	return ledger.Event{Key: m.Key, Version: m.Version, RecordedAt: m.RecordedAt}.ID()
}

// Source returns the CloudEvents source of an installation's events.
func Source(installation string) string { return sourcePrefix + installation }

// Encode returns the message for an event of a ledger without a [Prefix]. source is [Source] of the installation. The
// payload is the body: the event's data, or the task's args if the event makes the task available, both decoded. The
// message may be published once.
func Encode(e ledger.Event, payload []byte, source string) *nats.Msg {
	m, _ := None.encode(e, payload, source)
	return m
}

// EncodeWhole returns the message of [Encode] with the members that [Enclose] adds from meta, and its [Size].
func (p Prefix) EncodeWhole(e ledger.Event, payload, meta []byte, source string) (m *nats.Msg, size int64) {
	m, values := p.encode(e, payload, source)
	Enclose(m, meta)
	if len(m.Header) > len(plainNames) {
		return m, Size(m)
	}
	n := frame + plainFrame + len(m.Subject) + len(m.Data)
	for i := range values {
		n += len(values[i])
	}
	return m, int64(n)
}

// encode returns a message and the values of its plain headers.
func (p Prefix) encode(e ledger.Event, payload []byte, source string) (*nats.Msg, *plainValues) {
	traceparent, tracestate := TraceIn(e.Meta)
	// One string contains every value: this runs for each published event.
	var c cutter
	var space [512]byte
	c.text = space[:0]
	c.text = append(c.text, e.Kind...) // nothing to escape
	c.text = append(c.text, '/')
	c.text = appendEscaped(c.text, string(e.BizID))
	subject := c.peek()
	c.text = append(c.text, '/')
	c.text = strconv.AppendInt(c.text, int64(e.Version), 10)
	c.text = append(c.text, '@')
	c.text = strconv.AppendInt(c.text, e.RecordedAt.UnixMicro(), 10)
	id := c.cut()
	c.text = append(append(c.text, memberVersion...), '=')
	c.text = strconv.AppendInt(c.text, int64(e.Version), 10)
	c.text = append(append(append(c.text, '&'), memberAttempt...), '=')
	c.text = strconv.AppendInt(c.text, int64(e.Attempt), 10)
	c.text = append(append(append(c.text, '&'), memberPosition...), '=')
	c.text = strconv.AppendInt(c.text, int64(e.Position), 10)
	task := c.cut()
	// time.RFC3339Nano is timeLayout for a whole number of microseconds, and the only one of both with a fast path.
	c.text = e.RecordedAt.UTC().Truncate(time.Microsecond).AppendFormat(c.text, time.RFC3339Nano)
	at := c.cut()
	if p != None {
		c.text = append(append(c.text, p...), '.')
	}
	c.text = append(append(append(c.text, prefix+"."...), strconv.Itoa(int(e.Shard))...), '.')
	if reserved.IsKind(e.Kind) {
		c.text = append(c.text, bookkeepingPrefix...)
	}
	c.text = append(append(append(c.text, e.Type...), '.'), e.Kind...)
	channel := c.cut()
	c.text = appendEscaped(c.text, traceparent)
	trace := c.cut()

	text := string(c.text)
	m, values := blank()
	m.Subject, m.Data = channel.of(text), payload
	*values = plainValues{"1.0", id.of(text), typeHeader(e.Type), escape(source), subject.of(text), at.of(text),
		task.of(text)}
	if traceparent != "" {
		m.Header[headerTraceparent] = []string{trace.of(text)}
	}
	if tracestate != "" {
		m.Header[headerTracestate] = []string{tracestate}
	}
	return m, values
}

// typeHeaders are the values of headerType.
var typeHeaders = func() map[ledger.EventType]string {
	values := make(map[ledger.EventType]string)
	for _, row := range ledger.Transitions() {
		values[row.Type] = TypePrefix + string(row.Type)
	}
	return values
}()

// typeHeader returns the value of headerType for a type, which may be unknown.
func typeHeader(t ledger.EventType) string {
	if value, ok := typeHeaders[t]; ok {
		return value
	}
	return TypePrefix + string(t)
}

// Enclose adds members of the meta of a task's first event to a message with args. It also adds the trace context,
// unless the event brings its own. It adds nothing if the meta cannot be decoded.
func Enclose(m *nats.Msg, meta []byte) {
	if traceparent, tracestate := TraceIn(meta); traceparent != "" && m.Header[headerTraceparent] == nil {
		m.Header[headerTraceparent] = []string{traceparent}
		if tracestate != "" {
			m.Header[headerTracestate] = []string{tracestate}
		}
	}
	envelope, finishBy := BesideArgs(meta)
	if envelope != "" {
		m.Header[headerEnvelope] = []string{envelope}
	}
	if !finishBy.IsZero() {
		m.Header[headerFinishBy] = []string{finishBy.Format(timeLayout)}
	}
}

// BesideArgs returns the members of the meta of a task's first event that accompany the task's args in a message: the
// envelope, or "", and the deadline, or the zero time.
func BesideArgs(meta []byte) (envelope string, finishBy time.Time) {
	if !bytes.Contains(meta, quotedEnvelope) && !bytes.Contains(meta, quotedFinishBy) {
		return "", time.Time{}
	}
	return decodeBesideArgs(meta)
}

var (
	quotedEnvelope = []byte(`"` + MetaEnvelope + `"`)
	quotedFinishBy = []byte(`"` + metaFinishBy + `"`)
)

// decodeBesideArgs is separate from BesideArgs because its variables escape to the heap.
func decodeBesideArgs(meta []byte) (envelope string, finishBy time.Time) {
	var members map[string]json.RawMessage
	if json.Unmarshal(meta, &members) != nil {
		return "", time.Time{}
	}
	var compact bytes.Buffer // a header has one line
	if text, ok := members[MetaEnvelope]; ok && json.Compact(&compact, text) == nil {
		envelope = compact.String()
	}
	if json.Unmarshal(members[metaFinishBy], &finishBy) != nil || finishBy.IsZero() {
		return envelope, time.Time{}
	}
	return envelope, finishBy.UTC()
}

const (
	record    = 22 + 4 + 8 // length, sequence, time and lengths; checksum
	separator = len(": \r\n")
	// frame is the size of a message with headers, without its subject, data and headers.
	frame = record + len("NATS/1.0\r\n") + len("\r\n")
)

// plainFrame is the size of the plain headers without their values.
var plainFrame = func() (n int) {
	for _, name := range plainNames {
		n += len(name) + separator
	}
	return n
}()

// Size returns the number of bytes of a message that count against MaxBytes of the stream.
func Size(m *nats.Msg) int64 {
	n := frame + len(m.Subject) + len(m.Data)
	for name, values := range m.Header {
		for _, value := range values {
			n += len(name) + len(value) + separator
		}
	}
	return int64(n)
}

// TraceIn returns the trace context in an event's meta, or "" if it is missing or malformed: a malformed
// trace must not keep an event from being published. It ignores a tracestate without a traceparent.
func TraceIn(meta []byte) (traceparent, state string) {
	if !bytes.Contains(meta, []byte(headerTraceparent)) {
		return "", ""
	}
	var members map[string]json.RawMessage
	var parent, vendors string
	if json.Unmarshal(meta, &members) != nil || json.Unmarshal(members[headerTraceparent], &parent) != nil {
		return "", ""
	}
	if _, err := ledger.ParseTraceparent(parent); err != nil {
		return "", ""
	}
	if json.Unmarshal(members[headerTracestate], &vendors) != nil {
		return parent, ""
	}
	return parent, tracestate.Pass(vendors)
}

// cutter records where values end in a text that is still being written.
type cutter struct {
	text  []byte
	start int
}

type span struct{ from, to int }

func (s span) of(text string) string { return text[s.from:s.to] }

// peek returns the current value without ending it; cut ends it.
func (c *cutter) peek() span { return span{c.start, len(c.text)} }

func (c *cutter) cut() span {
	s := c.peek()
	c.start = s.to
	return s
}

// Decode reads a message that [Encode] made. Its errors wrap [ErrMalformed]. The payload is data itself, not
// a copy.
func Decode(subject string, header nats.Header, data []byte) (Message, error) {
	shard, t, kind, err := ParseSubject(subject)
	if err != nil {
		return Message{}, err
	}
	if got := header.Get(headerSpecVersion); got != "1.0" {
		return Message{}, malformed(headerSpecVersion, got)
	}
	m := Message{Shard: shard, Type: t, Payload: data, Envelope: header.Get(headerEnvelope)}
	if err := m.parseID(header.Get(headerID)); err != nil {
		return Message{}, err
	}
	if m.Kind != kind {
		return Message{}, malformed("kind of "+headerID, string(m.Kind))
	}
	if got := header.Get(headerType); got != TypePrefix+string(t) {
		return Message{}, malformed(headerType, got)
	}
	if err := m.parseTask(header.Get(headerTask)); err != nil {
		return Message{}, err
	}
	if text := header.Get(headerFinishBy); text != "" {
		if m.FinishBy, err = time.Parse(time.RFC3339, text); err != nil {
			return Message{}, malformed(headerFinishBy, text)
		}
	}
	var ok1, ok2 bool
	m.Source, ok1 = unescape(header.Get(headerSource))
	m.Traceparent, ok2 = unescape(header.Get(headerTraceparent))
	if !ok1 || !ok2 {
		return Message{}, malformed("encoding", header.Get(headerSource)+" "+header.Get(headerTraceparent))
	}
	if m.Traceparent != "" {
		m.Tracestate = tracestate.Pass(header.Get(headerTracestate))
	}
	return m, nil
}

// TraceOf returns the W3C trace context of a message that is to be published, or "".
func TraceOf(m *nats.Msg) (traceparent, tracestate string) {
	if values := m.Header[headerTraceparent]; len(values) > 0 {
		traceparent = values[0]
	}
	if values := m.Header[headerTracestate]; len(values) > 0 {
		tracestate = values[0]
	}
	return traceparent, tracestate
}

// IDOf returns the ce-id of a message as it is in the header, percent-encoded, or "".
func IDOf(header nats.Header) string { return header.Get(headerID) }

// KeyOf returns the key of a message's task, without decoding the rest.
func KeyOf(header nats.Header) (ledger.Key, bool) {
	subject, ok := unescape(header.Get(headerSubject))
	kind, id, found := strings.Cut(subject, "/")
	return ledger.Key{Kind: ledger.Kind(kind), BizID: ledger.BizID(id)}, ok && found
}

// parseID reads <kind>/<biz_id>/<version>@<recorded_at in µs>. Neither the kind nor the text after the last slash
// contains a slash, so the id is unambiguous for any biz_id.
func (m *Message) parseID(escaped string) error {
	id, ok := unescape(escaped)
	key, version, recordedAt, err := ledger.ParseEventID(id)
	if !ok || err != nil {
		return malformed(headerID, escaped)
	}
	m.Key, m.Version, m.RecordedAt = key, version, recordedAt
	return nil
}

// parseTask reads version=<version>&attempt=<attempt>&position=<position>. The version must equal the id's version.
// Members with other names are ignored.
func (m *Message) parseTask(text string) error {
	version, attempt, position := int64(-1), int64(-1), int64(-1)
	for rest := text; rest != ""; {
		var member string
		member, rest, _ = strings.Cut(rest, "&")
		name, value, _ := strings.Cut(member, "=")
		var number *int64
		switch name {
		case memberVersion:
			number = &version
		case memberAttempt:
			number = &attempt
		case memberPosition:
			number = &position
		default:
			continue
		}
		var err error
		if *number, err = strconv.ParseInt(value, 10, 64); err != nil {
			return malformed(headerTask, text)
		}
	}
	if version != int64(m.Version) || attempt < 0 || attempt > math.MaxInt32 || position < 0 {
		return malformed(headerTask, text)
	}
	m.Attempt, m.Position = ledger.Attempt(attempt), ledger.Position(position)
	return nil
}
