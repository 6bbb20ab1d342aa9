package ledger

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version is the number of an event within its task: 1, 2, 3… without gaps.
type Version int32

// Attempt is the number of a task's try, counted by the ledger: 0 before the first.
type Attempt int32

// Position is the number of an event in the ledger. Positions increase along a task, with gaps. They are not a cursor,
// because a lower position may become visible after a higher one: see package ledger/feed.
type Position int64

// Event is one immutable fact about one task.
type Event struct {
	Position   Position  `json:"position"`
	Key                  // kind and biz_id
	Version    Version   `json:"version"`
	Attempt    Attempt   `json:"attempt"`
	Shard      Shard     `json:"shard"`
	Type       EventType `json:"type"`
	RecordedAt time.Time `json:"recorded_at"`     // by the database's clock, to the microsecond
	Actor      string    `json:"actor,omitempty"` // the author, as the writer claims
	// Login is the database login (session_user) of the session that wrote the event. The database records it: no
	// caller chooses it.
	Login string `json:"login,omitempty"`
	// DataVersion is the version of the format of Data: [EnqueueOptions].DataVersion for args, the [DataVersion] of
	// this package for others.
	DataVersion int      `json:"data_version"`
	Priority    Priority `json:"priority,omitempty"` // of the task from this event on; 0: its default
	// Partition is the tenant or other group to which the task belongs from this event on.
	Partition string `json:"partition,omitempty"`
	// Run is the number of the run that the event begins, or whose args it replaces. It is 0 for other events, and for
	// a task's first event, which begins run 1.
	Run int `json:"run,omitempty"`
	// OrderKey names the line in which the task stands, "" for none: see [EnqueueOptions].OrderKey.
	OrderKey string `json:"order_key,omitempty"`

	Data json.RawMessage `json:"data,omitempty"` // as stored, byte for byte; see [Event.Payload]
	Meta json.RawMessage `json:"meta,omitempty"` // as stored; see [Meta]
}

// String returns the key, the version, the type, the attempt and the error, if any, such as "coupon.send/A-1 version 6
// failed, attempt 3: card refused". Its form may change.
func (e Event) String() string {
	text := fmt.Sprintf("%s version %d %s, attempt %d", e.Key, e.Version, e.Type, e.Attempt)
	if message := e.ErrorText(); message != "" {
		text += ": " + message
	}
	return text
}

// HasArgs reports whether Data and Meta are the args and the meta of the task: e enqueued it, or a later run of it, or
// replaced its args.
func (e Event) HasArgs() bool { return e.Version == 1 || e.Run > 0 }

// ID returns the unique ID of this event: <kind>/<biz_id>/<version>@<recorded_at in microseconds>. The key
// and the version alone are not unique: a fail-over that loses commits can assign a version twice.
func (e Event) ID() string {
	version := strconv.FormatInt(int64(e.Version), 10)
	return e.Key.String() + "/" + version + "@" + strconv.FormatInt(e.RecordedAt.UnixMicro(), 10)
}

// ParseEventID is the inverse of [Event.ID]. It returns an [*InvalidError] if id is not an event ID.
func ParseEventID(id string) (k Key, v Version, recordedAt time.Time, err error) {
	kind, rest, _ := strings.Cut(id, "/") // a kind contains no slash, nor does a version
	slash := max(0, strings.LastIndexByte(rest, '/'))
	k = Key{Kind(kind), BizID(rest[:slash])}
	version, micros, _ := strings.Cut(strings.TrimPrefix(rest[slash:], "/"), "@")
	n, versionErr := strconv.ParseInt(version, 10, 32)
	us, timeErr := strconv.ParseInt(micros, 10, 64)
	if strings.Contains(rest[slash:], "+") || versionErr != nil || timeErr != nil || n < 1 || k.Validate() != nil {
		rule := "must be <kind>/<biz_id>/<version>@<microseconds>"
		return Key{}, 0, time.Time{}, &InvalidError{Field: "event id", Value: id, Rule: rule}
	}
	return k, Version(n), time.UnixMicro(us).UTC(), nil
}

// Payload returns the data of the event as its producer passed it. Bytes that are not JSON are stored as
// base64 and decoded here. It returns a [*CorruptError] if they do not decode.
func (e Event) Payload() ([]byte, error) { return decodePayload(e.Data, e.Meta) }

// decodePayload decodes stored data by the encoding in meta. It returns a [*CorruptError] if that fails.
func decodePayload(data, meta json.RawMessage) ([]byte, error) {
	if len(meta) == 0 || len(data) == 0 {
		return data, nil
	}
	encoding, err := parseEncoding(meta)
	if err != nil {
		return nil, err
	}
	switch encoding {
	case "":
		return data, nil
	case EncodingBase64:
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return nil, &CorruptError{What: "base64 payload", Err: err}
		}
		payload, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, &CorruptError{What: "base64 payload", Err: err}
		}
		return payload, nil
	default:
		return nil, &CorruptError{What: "payload", Err: fmt.Errorf("unknown encoding %q", encoding)}
	}
}

// parseEncoding returns the encoding of the data from meta. It ignores invalid values of other members, so
// that the payload stays readable.
func parseEncoding(meta json.RawMessage) (encoding string, err error) {
	if len(meta) == 0 {
		return "", nil
	}
	return decodeEncoding(meta)
}

// decodeEncoding is separate from parseEncoding because its variables escape to the heap.
func decodeEncoding(meta json.RawMessage) (encoding string, err error) {
	var members map[string]json.RawMessage
	if err = json.Unmarshal(meta, &members); err == nil && members["encoding"] != nil {
		err = json.Unmarshal(members["encoding"], &encoding)
	}
	if err != nil {
		return "", &CorruptError{What: "meta: encoding", Err: err}
	}
	return encoding, nil
}
