package ledger_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
)

// shape is what this package reads from an event.
type shape struct {
	Payload     string    `json:"payload,omitempty"` // of a first event
	Cause       string    `json:"cause,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	Result      string    `json:"result,omitempty"`
	DueAt       time.Time `json:"due_at,omitzero"`
	StartBy     time.Time `json:"start_by,omitzero"`
	FinishBy    time.Time `json:"finish_by,omitzero"`
}

// shapeOf reads an event as the fold of a task does.
func shapeOf(t *testing.T, e ledger.Event) shape {
	t.Helper()
	s := shape{Reason: e.ErrorText(), DueAt: e.DueAt()}
	if e.Version == 1 {
		e.Attempt = 0
		task, err := ledger.Fold([]ledger.Event{e})
		payload, payloadErr := e.Payload()
		if err != nil || payloadErr != nil {
			t.Fatalf("%v, %v", err, payloadErr)
		}
		s.Payload, s.StartBy, s.FinishBy = compact(payload), task.StartBy, task.FinishBy
		if task.Cause != (ledger.Key{}) {
			s.Cause = task.Cause.String()
		}
		s.Reason = ""
	}
	switch e.Type {
	case ledger.EventFailed, ledger.EventBuried:
		s.Fingerprint = e.ErrorFingerprint()
	case ledger.EventSucceeded:
		first := ledger.Event{Key: e.Key, Version: 1, Type: ledger.EventEnqueued}
		e.Version, e.Attempt = 2, 1
		task, err := ledger.Fold([]ledger.Event{first, e})
		if err != nil {
			t.Fatal(err)
		}
		s.Result = compact(task.Result)
	}
	return s
}

func compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}

// Each shape of data that was ever written is read as when it was written. A change of a shape adds files with the next
// version of data, and an upcast; no file is changed or removed.
func TestEveryShapeIsRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/shapes/*.json")
	if err != nil {
		t.Fatal(err)
	}
	type version struct {
		Type ledger.EventType
		N    int
	}
	found := make(map[version]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var golden struct {
			Event ledger.Event
			Want  shape
		}
		if err := json.Unmarshal(text, &golden); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[version{golden.Event.Type, golden.Event.DataVersion}] = true
		e, err := ledger.Upcast(golden.Event)
		if err != nil || e.DataVersion != ledger.DataVersion {
			t.Errorf("%s: version %d, %v", file, e.DataVersion, err)
		}
		if diff := difference.Of(golden.Want, shapeOf(t, e)); diff != "" {
			t.Errorf("%s (-want +read):\n%s", file, diff)
		}
	}
	for _, row := range ledger.Transitions() {
		for n := 1; n <= ledger.DataVersion; n++ {
			if !found[version{row.Type, n}] {
				t.Errorf("testdata/shapes has no data of %s in version %d", row.Type, n)
			}
		}
	}
}
