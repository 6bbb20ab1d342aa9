package outbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/ledger"
)

// Reader is the name of the relay's cursor.
const Reader = "relay"

const reader = Reader

// mark is the JSON in every cursor row. It describes the stream at the moment when all messages before the
// row were on it, so that a later session can detect a loss. The view taskledger.relay_mark is the only SQL that
// names its fields (TestViewOfTheMark).
type mark struct {
	Generation int    `json:"generation"`             // number of losses plus 1; part of message ids
	Created    string `json:"stream_created"`         // of the stream, as createdAt
	Seq        uint64 `json:"stream_seq"`             // last known message; all later ones are of this relay
	LastEvent  string `json:"stream_event,omitempty"` // ce-id of the message at Seq
	Accounted  uint64 `json:"stream_accounted"`       // messages behind may be of events that the row does not have
	First      uint64 `json:"stream_first"`           // messages below may be missing: purged, or published again
	Purged     uint64 `json:"purged,omitempty"`       // messages below were purged, because they were acknowledged
	Deleted    int    `json:"deleted,omitempty"`      // holes in the stream that are accounted for
	Lost       int    `json:"lost,omitempty"`         // messages that the server reports as lost, accounted for
	Cleared    uint64 `json:"cleared,omitempty"`      // messages up to here were removed unless they wait for workers
	IsClearing bool   `json:"clearing,omitempty"`     // some of them still exist
	Owed       *owed  `json:"owed,omitempty"`         // messages to be published again after a loss

	Server      string `json:"server,omitempty"`       // the run of the server in which no relay of a copy works
	ServerSince int64  `json:"server_since,omitempty"` // microseconds since 1970: when this was found

	// Withheld has the kinds whose work messages are published up to places only, because too many wait.
	Withheld *withheld `json:"withheld,omitzero"`
	// Missed has the durable subscribers, by name, whose messages were removed before they received them.
	Missed map[string]Missed `json:"missed,omitempty"`
}

// Missed is what a durable subscriber did not receive: events from a position on, which the ledger has.
type Missed struct {
	From    ledger.Position `json:"from_position"`
	Created time.Time       `json:"consumer_created"` // another consumer with this name has missed nothing
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

// parseMark decodes the mark of a cursor row. It returns false if the row has none, because no page was
// published.
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

// firstMark returns the mark of a relay that has published nothing: all older messages on the stream will be
// published again, so none of them can be lost. It is written when the first page waits.
func firstMark(info *jetstream.StreamInfo) mark {
	return mark{
		Generation: 1, Created: createdAt(info), First: info.State.LastSeq + 1, Accounted: info.State.LastSeq,
		Deleted: info.State.NumDeleted, Lost: lostMessages(info),
	}
}

// lostMessages returns the number of messages that the server reports as lost.
func lostMessages(info *jetstream.StreamInfo) int {
	if info.State.Lost == nil {
		return 0
	}
	return len(info.State.Lost.Msgs)
}
