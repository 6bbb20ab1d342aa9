package ledger

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version numbers the events of one task: 1, 2, 3… without gaps.
type Version int32

// Attempt is the n-th try of a task, counted by the ledger: 0 before the first.
type Attempt int32

// Position is the number of an event in the ledger. Positions increase along a task but may
// have gaps, and a lower position may become visible after a higher one: do not use one as a
// cursor, use a [Feed].
type Position int64

// Event is one immutable fact about one task.
type Event struct {
	Position   Position        `json:"position"`
	Key                        // kind and biz_id
	Version    Version         `json:"version"`
	Attempt    Attempt         `json:"attempt"`
	Shard      Shard           `json:"shard"`
	Type       EventType       `json:"type"`
	RecordedAt time.Time       `json:"recorded_at"` // by the database's clock, to the microsecond
	Actor      string          `json:"actor,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"` // as stored, byte for byte; see Payload
	Meta       json.RawMessage `json:"meta,omitempty"` // as stored; see [Meta]
}

// String returns key, version, type and the error, if there is one, such as
// "coupon.send/A-1 version 6 failed, attempt 3: card refused". Its form may change.
func (e Event) String() string {
	text := fmt.Sprintf("%s version %d %s, attempt %d", e.Key, e.Version, e.Type, e.Attempt)
	if message := e.ErrorText(); message != "" {
		text += ": " + message
	}
	return text
}

// ID names this event among all that ever were: <kind>/<biz_id>/<version>@<recorded_at in µs>.
// The version alone would not do, since a fail-over that loses commits can issue one twice.
func (e Event) ID() string {
	return e.Key.String() + "/" + strconv.FormatInt(int64(e.Version), 10) + "@" + strconv.FormatInt(e.RecordedAt.UnixMicro(), 10)
}

// ParseEventID takes apart what [Event.ID] made. It returns an [*InvalidError] if id is none.
func ParseEventID(id string) (k Key, v Version, recordedAt time.Time, err error) {
	kind, rest, _ := strings.Cut(id, "/") // a kind holds no slash, and a version neither
	slash := max(0, strings.LastIndexByte(rest, '/'))
	k = Key{Kind(kind), BizID(rest[:slash])}
	version, micros, _ := strings.Cut(strings.TrimPrefix(rest[slash:], "/"), "@")
	n, versionErr := strconv.ParseInt(version, 10, 32)
	us, timeErr := strconv.ParseInt(micros, 10, 64)
	if strings.Contains(rest[slash:], "+") || versionErr != nil || timeErr != nil || n < 1 || k.Validate() != nil {
		return Key{}, 0, time.Time{}, &InvalidError{Field: "event id", Value: id, Rule: "must be <kind>/<biz_id>/<version>@<microseconds>"}
	}
	return k, Version(n), time.UnixMicro(us).UTC(), nil
}

// Payload returns the data of the event as its producer gave it. Bytes that are not JSON are decoded
// from the base64 in which they are stored. It returns a [*CorruptError] if they do not decode.
func (e Event) Payload() ([]byte, error) { return decodePayload(e.Data, e.Meta) }

// decodePayload decodes stored data as meta says. It returns a [*CorruptError] if the two do not fit.
func decodePayload(data, meta json.RawMessage) ([]byte, error) {
	if len(meta) == 0 || len(data) == 0 {
		return data, nil
	}
	encoding, err := encodingOf(meta)
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

// encodingOf reads the one member of meta that says what the data are. What the others hold is no
// reason to withhold the payload.
func encodingOf(meta json.RawMessage) (encoding string, err error) {
	if len(meta) == 0 {
		return "", nil
	}
	var members map[string]json.RawMessage
	if err = json.Unmarshal(meta, &members); err == nil && members["encoding"] != nil {
		err = json.Unmarshal(members["encoding"], &encoding)
	}
	if err != nil {
		return "", &CorruptError{What: "meta: encoding", Err: err}
	}
	return encoding, nil
}
