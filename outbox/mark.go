package outbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/ledger"
)

// reader is the name of the relay's cursor.
const reader = "relay"

// mark is the JSON in every cursor row. With the last sequence of the stream it shows where the next session continues.
// The view taskledger_internal.relay_mark is the only SQL that names its fields (TestViewOfTheMark).
type mark struct {
	Generation int    `json:"generation"`       // number of losses of the stream, plus 1
	Created    string `json:"stream_created"`   // when the stream was created, as createdAt
	Seq        uint64 `json:"stream_seq"`       // messages of events before the row's place are not behind this one
	Tail       uint64 `json:"stream_tail"`      // messages of events after the place are behind this one
	MaxAge     int64  `json:"max_age_ms"`       // how long the stream keeps messages; 0: forever
	Server     string `json:"server,omitempty"` // the run of the server in which no relay of a copy has answered
}

func createdAt(info *jetstream.StreamInfo) string {
	return info.Created.UTC().Format(time.RFC3339Nano)
}

func (m mark) encode() json.RawMessage {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // numbers and strings always encode
	}
	return text
}

// parseMark decodes the mark of a cursor row. It returns false if the row has none, because no session has written one
// yet, or because a rebase has moved the cursor.
func parseMark(text json.RawMessage) (mark, bool, error) {
	if len(text) == 0 {
		return mark{}, false, nil
	}
	var m mark
	err := json.Unmarshal(text, &m)
	if err == nil && m.Generation < 1 {
		err = fmt.Errorf("generation %d", m.Generation)
	}
	if err != nil {
		return mark{}, false, &ledger.CorruptError{What: "mark of the relay's cursor", Err: err}
	}
	return m, true, nil
}
