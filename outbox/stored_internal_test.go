package outbox

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// A session takes what it has found on the stream, as long as the events of each task stay in their order.
func TestStored(t *testing.T) {
	t.Parallel()
	now := time.Now()
	messageOf := func(id ledger.BizID, version int, data string) message {
		e := &ledger.Event{
			Position: ledger.Position(10*version) + ledger.Position(id[0]), Key: ledger.Key{Kind: "k", BizID: id},
			Version: ledger.Version(version), Type: ledger.EventStarted, RecordedAt: now,
		}
		return message{event: e, msg: stream.Encode(*e, []byte(data), "taskledger/x", 0)}
	}
	seq := uint64(0)
	found := func(m message, age time.Duration) storedMessage {
		seq++
		raw := &jetstream.RawStreamMsg{
			Subject: m.msg.Subject, Header: m.msg.Header, Data: m.msg.Data, Sequence: seq, Time: now.Add(-age),
		}
		return newStoredMessage(raw, stream.Message{Key: m.event.Key, Position: m.event.Position})
	}
	var s stored
	if s.take(messageOf("a", 1, "")) {
		t.Error("nothing is stored")
	}
	s.add([]storedMessage{
		found(messageOf("a", 1, "x"), 0), found(messageOf("a", 2, "x"), 0), found(messageOf("a", 3, "x"), 0),
		found(messageOf("b", 1, "other"), 0), found(messageOf("b", 2, "x"), 0), // by another writer
		found(messageOf("c", 2, "x"), 0), found(messageOf("c", 1, "x"), 0), // in another order
		found(messageOf("d", 2, "x"), 0), found(messageOf("d", 3, "x"), 0), // version 1 is missing
		found(messageOf("e", 1, "x"), time.Hour),
		found(messageOf("p", 2, "x"), 0), // undone, and its position is that of version 1 of z
	}, now.Add(-time.Minute))
	for _, test := range []struct {
		id      ledger.BizID
		version int
		want    bool
	}{
		{id: "a", version: 1, want: true}, {id: "a", version: 1, want: false},
		{id: "a", version: 2, want: false}, {id: "a", version: 3, want: false},
		{id: "b", version: 1, want: false}, {id: "b", version: 2, want: false},
		{id: "c", version: 1, want: true}, {id: "c", version: 2, want: false},
		{id: "d", version: 1, want: false}, {id: "d", version: 2, want: false}, {id: "d", version: 3, want: false},
		{id: "e", version: 1, want: false}, {id: "f", version: 1, want: false}, {id: "z", version: 1, want: false},
	} {
		if got := s.take(messageOf(test.id, test.version, "x")); got != test.want {
			t.Errorf("version %d of %s is stored: %v, want %v", test.version, test.id, got, test.want)
		}
	}
	if len(s.messages) != 0 {
		t.Errorf("%d messages are left", len(s.messages))
	}
	first, second := messageOf("g", 1, "x"), messageOf("g", 2, "x") // the stream has refused the first one
	s.add([]storedMessage{found(second, 0)}, now.Add(-time.Minute))
	missing, others := s.split([]message{first, second})
	if len(missing) != 1 || missing[0].event != first.event || len(others) != 1 || others[0].event != second.event {
		t.Errorf("missing %v, found %v", missing, others)
	}
	if s.overtake(first); s.take(second) {
		t.Error("an event counts as stored although the one before it is stored behind it")
	}
}
