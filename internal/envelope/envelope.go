// Package envelope converts a Watermill message into a task and back. Publishers and subscribers share it.
//
//	message                       task                          on the wire
//	----------------------------  ----------------------------  -----------------------
//	topic                         kind                          subject, ce-id
//	metadata biz_id, else UUID    biz_id                        ce-id
//	payload                       args: JSON unchanged; other   body
//	                              bytes, and JSON strings that
//	                              are valid base64, in base64
//	metadata; UUID if not biz_id  meta.watermill, one object    header watermill, the same
//	metadata traceparent          meta.traceparent as well      header traceparent
//	metadata tracestate           meta.tracestate as well       header tracestate
package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// MetadataBizID is the metadata key whose value becomes the biz_id of the task. Without it, the UUID is the
// biz_id.
const MetadataBizID = "biz_id"

// Message is a message of Watermill. This package does not import Watermill, whose users alone need its modules.
type Message struct {
	UUID     string
	Payload  []byte
	Metadata map[string]string
}

// envelope is the JSON form of a message without its payload.
type envelope struct {
	UUID     *string           `json:"uuid,omitempty"` // nil: the biz_id
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Kind returns the kind of a topic, or an [*ledger.InvalidError] if the topic is not a kind.
func Kind(topic string) (ledger.Kind, error) {
	kind := ledger.Kind(topic)
	if err := kind.Validate(); err != nil {
		return "", fmt.Errorf("topic %q is not a kind: %w", topic, err)
	}
	return kind, nil
}

// Entry returns the task that a message becomes. It returns an [*ledger.InvalidError] if the topic, the
// UUID or the metadata is invalid. The entry shares the message's payload. It accepts other args, so that [Conflict]
// can name the message.
func Entry(topic string, m Message) (ledger.Entry, error) {
	id := m.Metadata[MetadataBizID]
	if id == "" {
		id = m.UUID
	}
	if id == "" {
		rule := "must not be empty where the metadata has no " + MetadataBizID
		return ledger.Entry{}, &ledger.InvalidError{Field: "message UUID", Rule: rule}
	}
	kind, err := Kind(topic)
	if err != nil {
		return ledger.Entry{}, err
	}
	key := ledger.Key{Kind: kind, BizID: ledger.BizID(id)}
	if err := key.BizID.Validate(); err != nil {
		return ledger.Entry{}, fmt.Errorf("message %q: %w", m.UUID, err)
	}
	meta, err := pack(m, id)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("message %q: %w", m.UUID, err)
	}
	args := json.RawMessage(m.Payload)
	if len(args) == 0 {
		args = nil
	}
	options := &ledger.EnqueueOptions{Meta: meta, Binary: args != nil && !isStoredUnchanged(args),
		IfExists: ledger.IfExistsIgnore}
	return ledger.Entry{Key: key, Args: args, Options: options}, nil
}

// isStoredUnchanged reports whether a payload is stored as the JSON that it is. A JSON string that is valid
// base64 is not, because it would equal the stored form of other bytes.
func isStoredUnchanged(payload []byte) bool {
	if !ledger.IsJSON(payload) {
		return false
	}
	inner, ok := bytes.CutPrefix(payload, []byte(`"`))
	if !ok {
		return true
	}
	_, err := base64.StdEncoding.Strict().DecodeString(string(bytes.TrimSuffix(inner, []byte(`"`))))
	return err != nil
}

// Conflict returns a [*ledger.OtherArgsError] if the task of a message exists with another payload, else nil.
func Conflict(e ledger.Enqueued) error {
	if e.New || e.SameArgs {
		return nil
	}
	return fmt.Errorf("a message with another payload was published before: %w", &ledger.OtherArgsError{Existing: e})
}

// pack returns the meta of a message's task.
func pack(m Message, id string) (ledger.Meta, error) {
	var e envelope
	if m.UUID != id {
		e.UUID = &m.UUID
	}
	e.Metadata = m.Metadata
	if e.UUID == nil && len(e.Metadata) == 0 {
		return ledger.Meta{}, nil
	}
	keys, values := slices.Collect(maps.Keys(m.Metadata)), slices.Collect(maps.Values(m.Metadata))
	for _, s := range slices.Concat([]string{m.UUID}, keys, values) {
		// Marshal would silently replace invalid UTF-8, and the database does not store NUL.
		if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
			return ledger.Meta{}, &ledger.InvalidError{Field: "metadata", Rule: "must be valid UTF-8 without NUL"}
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		return ledger.Meta{}, &ledger.InvalidError{Field: "metadata", Rule: "must be JSON: " + err.Error()}
	}
	return ledger.Meta{
		Traceparent: m.Metadata["traceparent"], Tracestate: m.Metadata["tracestate"],
		Extra: map[string]json.RawMessage{stream.MetaEnvelope: text},
	}, nil
}

// Open returns the message that became a task: text is its envelope, and payload the task's args. If text is empty, the
// task was not published as a message: the UUID is the biz_id, and the only metadata is the trace context. It returns a
// [*ledger.CorruptError] if the envelope does not decode.
func Open(id ledger.BizID, payload []byte, text, traceparent, tracestate string) (Message, error) {
	m := Message{UUID: string(id), Payload: payload, Metadata: make(map[string]string)}
	if text == "" {
		if traceparent != "" {
			m.Metadata["traceparent"] = traceparent
		}
		if tracestate != "" {
			m.Metadata["tracestate"] = tracestate
		}
		return m, nil
	}
	var e envelope
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return Message{}, &ledger.CorruptError{What: "watermill metadata", Err: err}
	}
	if e.UUID != nil {
		m.UUID = *e.UUID
	}
	if e.Metadata != nil {
		m.Metadata = e.Metadata
	}
	return m, nil
}

// Metadata keys of an event's message: the CloudEvents attributes as on the wire but not percent-encoded, and the
// members of ce-task each by itself.
const (
	MetadataEventID  = "ce-id"
	MetadataType     = "ce-type"
	MetadataSource   = "ce-source"
	MetadataSubject  = "ce-subject"
	MetadataTime     = "ce-time"
	MetadataVersion  = "ce-taskversion"
	MetadataAttempt  = "ce-taskattempt"
	MetadataPosition = "ce-taskposition"
)

// Event returns the message of an event. For a task's first event, its UUID is the published message's UUID. For later
// events it is the event's id.
func Event(e stream.Message) (Message, error) {
	m, err := Open(e.BizID, e.Payload, e.Envelope, e.Traceparent, e.Tracestate)
	if err != nil {
		return Message{}, err
	}
	id := e.ID()
	if e.Version > 1 {
		m.UUID = id
	}
	for key, value := range map[string]string{
		MetadataEventID: id, MetadataType: stream.TypePrefix + string(e.Type), MetadataSource: e.Source,
		MetadataSubject: e.Key.String(), MetadataTime: e.RecordedAt.Format(time.RFC3339Nano),
		MetadataVersion: strconv.Itoa(int(e.Version)), MetadataAttempt: strconv.Itoa(int(e.Attempt)),
		MetadataPosition: strconv.FormatInt(int64(e.Position), 10),
	} {
		m.Metadata[key] = value
	}
	return m, nil
}
