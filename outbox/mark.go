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

// mark is the note in every cursor row: what the stream was like when everything before the row
// was on it. By it a loss shows; and the reconciler of the workers reads from it where messages stand.
type mark struct {
	Generation int    `json:"generation"`          // counts losses, from 1; part of message ids
	Created    string `json:"stream_created"`      // of the stream, as createdAt
	Seq        uint64 `json:"stream_seq"`          // last message known; after it only this relay's own come
	LastID     string `json:"stream_id,omitempty"` // message id at Seq
	First      uint64 `json:"stream_first"`        // what is missing below is accounted for: purged by us, or published again
	Purged     uint64 `json:"purged,omitempty"`    // we purged below, since everybody had acknowledged it
	Deleted    int    `json:"deleted,omitempty"`   // messages missing in the middle that are accounted for
	Lost       int    `json:"lost,omitempty"`      // messages that the server reports as lost, accounted for
	Owed       *owed  `json:"owed,omitempty"`      // work messages still to be published again after a loss
}

// owed is the rest of what a loss made necessary: the work message of each unfinished task
// whose waking event lies after After, up to To.
type owed struct {
	After ledger.Position `json:"after"`
	To    ledger.Position `json:"to"`
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

// parseMark reads the mark of a cursor row; false if it has none, since nothing was published.
func parseMark(text json.RawMessage) (mark, bool, error) {
	if len(text) == 0 {
		return mark{}, false, nil
	}
	var m mark
	if err := json.Unmarshal(text, &m); err != nil {
		return mark{}, false, &ledger.CorruptError{What: "mark of the relay's cursor", Err: err}
	}
	if m.Generation < 1 {
		return mark{}, false, &ledger.CorruptError{What: "mark of the relay's cursor", Err: fmt.Errorf("generation %d", m.Generation)}
	}
	return m, true, nil
}

// firstMark is the mark of a relay that has published nothing yet: whatever the stream holds
// will be published again, so none of it can be lost.
func firstMark(info *jetstream.StreamInfo) mark {
	return mark{Generation: 1, Created: createdAt(info), First: info.State.LastSeq + 1,
		Deleted: info.State.NumDeleted, Lost: lostMessages(info)}
}

func lostMessages(info *jetstream.StreamInfo) int {
	if info.State.Lost == nil {
		return 0
	}
	return len(info.State.Lost.Msgs)
}
