package ledger

import (
	"bytes"
	"encoding/json"
	"time"
)

// EncodingBase64 is the [Meta].Encoding of data that are bytes and not JSON: a JSON string of base64.
const EncodingBase64 = "base64"

// Meta is the JSON object stored with the data of an event, at most max_meta_bytes long (16 KiB).
type Meta struct {
	// Traceparent and Tracestate are the W3C trace context of the producer. Workers and the relay shorten
	// Tracestate as W3C specifies.
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
	// Causation is the ID of the event that caused this one.
	Causation string   `json:"causation,omitempty"`
	Tags      []string `json:"tags,omitempty"`
	// Encoding of the data is "" for JSON or [EncodingBase64]. [Enqueue] sets it.
	Encoding string `json:"encoding,omitempty"`

	// Retry is the task's own [RetryPolicy]. [Enqueue] sets it from the option of this name. It is JSON, because
	// another program may have stored an invalid policy: [ParseRetryPolicy] decodes it.
	Retry json.RawMessage `json:"retry,omitempty"`

	// RunAt, StartBy and FinishBy are the due time and the deadlines of the task. [Enqueue] sets them from
	// the options of these names.
	RunAt    time.Time `json:"run_at,omitzero"`
	StartBy  time.Time `json:"start_by,omitzero"`
	FinishBy time.Time `json:"finish_by,omitzero"`

	// Extra contains all other members.
	Extra map[string]json.RawMessage `json:"-"`
}

// ParseMeta decodes the meta of an event; nil decodes to the zero Meta. It does not validate Retry.
// It returns a [*CorruptError] if meta is not a JSON object or another member is of the wrong type.
func ParseMeta(meta json.RawMessage) (Meta, error) {
	var m Meta
	if len(meta) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(meta, &m.Extra); err != nil {
		return Meta{}, &CorruptError{What: "meta", Err: err}
	}
	// One by one, because decoding into the struct would accept "Tags" for "tags".
	for name, into := range map[string]any{
		"traceparent": &m.Traceparent, "tracestate": &m.Tracestate, "causation": &m.Causation, "tags": &m.Tags,
		"encoding": &m.Encoding, "retry": &m.Retry,
		memberRunAt: &m.RunAt, memberStartBy: &m.StartBy, memberFinishBy: &m.FinishBy,
	} {
		text, ok := m.Extra[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(text, into); err != nil {
			return Meta{}, &CorruptError{What: "meta: " + name, Err: err}
		}
		delete(m.Extra, name)
	}
	if string(m.Retry) == "null" {
		m.Retry = nil
	}
	if len(m.Extra) == 0 {
		m.Extra = nil
	}
	return m, nil
}

// MarshalJSON returns the fields and Extra as one object.
func (m Meta) MarshalJSON() ([]byte, error) {
	fields, err := json.Marshal(plainMeta(m))
	if err != nil || len(m.Extra) == 0 {
		return fields, err
	}
	extra, err := json.Marshal(m.Extra)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(fields, []byte("{}")) {
		return extra, nil
	}
	object := append(fields[:len(fields)-1], ',')
	return append(object, extra[1:]...), nil
}

// setRetry sets Retry to p. If p is nil, it validates Retry.
func (m *Meta) setRetry(p *RetryPolicy) (err error) {
	switch {
	case p == nil && len(m.Retry) == 0:
		return nil
	case p == nil:
		_, err = ParseRetryPolicy(m.Retry)
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	m.Retry, err = json.Marshal(p)
	return err
}

func (m Meta) isZero() bool {
	return m.Traceparent == "" && m.Tracestate == "" && m.Causation == "" && len(m.Tags) == 0 &&
		m.Encoding == "" && len(m.Retry) == 0 && !m.hasTimes() && len(m.Extra) == 0
}

func (m Meta) hasTimes() bool {
	return !m.RunAt.IsZero() || !m.StartBy.IsZero() || !m.FinishBy.IsZero()
}

// plainMeta is Meta without its MarshalJSON.
type plainMeta Meta
