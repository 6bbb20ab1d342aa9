package ledger

import (
	"bytes"
	"encoding/json"
	"time"
)

// EncodingBase64 marks data that is a base64 JSON string of bytes that are not JSON.
const EncodingBase64 = "base64"

// Meta is the JSON object of an event beside its data, at most max_meta_bytes (16 KiB).
type Meta struct {
	Traceparent string   `json:"traceparent,omitempty"` // W3C trace context of the producer
	Tracestate  string   `json:"tracestate,omitempty"`  // beside it; workers and the relay shorten it as W3C asks
	Causation   string   `json:"causation,omitempty"`   // id of the event that led to this one
	Tags        []string `json:"tags,omitempty"`
	Encoding    string   `json:"encoding,omitempty"` // of the data: "" is JSON; set by Enqueue

	// Retry is the task's own [RetryPolicy], set by Enqueue from the option of this name. It stays JSON, since
	// another producer may have written one that is invalid: [ParseRetryPolicy] reads it.
	Retry json.RawMessage `json:"retry,omitempty"`

	// When the task is due and its deadlines; set by Enqueue, from the options of these names.
	RunAt    time.Time `json:"run_at,omitzero"`
	StartBy  time.Time `json:"start_by,omitzero"`
	FinishBy time.Time `json:"finish_by,omitzero"`

	Extra map[string]json.RawMessage `json:"-"` // all other members
}

// ParseMeta decodes the meta of an event; nil decodes to the zero Meta. It does not validate Retry.
// It returns a [*CorruptError] if meta is not a JSON object, or another member has the wrong type.
func ParseMeta(meta json.RawMessage) (Meta, error) {
	var m Meta
	if len(meta) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(meta, &m.Extra); err != nil {
		return Meta{}, &CorruptError{What: "meta", Err: err}
	}
	// One by one, since decoding into the struct would take "Tags" for "tags".
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

// MarshalJSON writes the known members and Extra as one object.
func (m Meta) MarshalJSON() ([]byte, error) {
	known, err := json.Marshal(plainMeta(m))
	if err != nil || len(m.Extra) == 0 {
		return known, err
	}
	extra, err := json.Marshal(m.Extra)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(known, []byte("{}")) {
		return extra, nil
	}
	joined := append(known[:len(known)-1], ',')
	return append(joined, extra[1:]...), nil
}

// setRetry writes the retry policy of a task, if there is one, and otherwise checks the one in m.
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
		m.Encoding == "" && len(m.Retry) == 0 && !m.timed() && len(m.Extra) == 0
}

func (m Meta) timed() bool {
	return !m.RunAt.IsZero() || !m.StartBy.IsZero() || !m.FinishBy.IsZero()
}

// plainMeta is Meta without its MarshalJSON.
type plainMeta Meta
