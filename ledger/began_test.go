package ledger_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// The first event of an attempt, or its outcome, implies when the attempt began.
func TestBeganAt(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		of      ledger.EventType
		data    string
		want    time.Duration // before the event
		unknown bool
	}{
		{name: "a start that is recorded at once", of: ledger.EventStarted},
		{name: "a start that must not be repeated", of: ledger.EventStarted, data: `{"guarantee":"at most once"}`},
		{
			name: "a late start", of: ledger.EventStarted, data: `{"duration_ms":1000.5}`,
			want: 1000500 * time.Microsecond,
		},
		{
			name: "a first report", of: ledger.EventProgressed, data: `{"duration_ms":7,"progress":{}}`,
			want: 7 * time.Millisecond,
		},
		{name: "a report", of: ledger.EventProgressed, data: `{"progress":{"duration_ms":7}}`, unknown: true},
		{name: "an outcome", of: ledger.EventFailed, data: `{"duration_ms":2}`, want: 2 * time.Millisecond},
		{name: "a forged time", of: ledger.EventStarted, data: `{"duration_ms":1e300}`},
		{name: "a negative time", of: ledger.EventStarted, data: `{"duration_ms":-1}`},
		{name: "args", of: ledger.EventEnqueued, data: `{"duration_ms":2}`, unknown: true},
	} {
		e := ledger.Event{Type: test.of, RecordedAt: at, Data: json.RawMessage(test.data)}
		began, ok := e.BeganAt()
		if ok == test.unknown || ok && !began.Equal(at.Add(-test.want)) {
			t.Errorf("%s: %s, %v", test.name, began, ok)
		}
	}
}
