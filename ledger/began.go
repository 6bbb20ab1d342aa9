package ledger

import (
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/internal/strictjson"
)

// maxRan is the longest time of an attempt that counts.
const maxRan = 10 * 365 * 24 * time.Hour

// BeganAt returns when the attempt of e began: duration_ms before the event was recorded, by the database's clock. A
// worker records the start of an attempt, or its outcome alone, some time after it began. It reports false if e
// contains no such time: it belongs to no attempt, or an earlier event of the attempt contains the time.
func (e Event) BeganAt() (time.Time, bool) {
	switch e.Type {
	case EventStarted, EventProgressed, EventSucceeded, EventFailed, EventInterrupted, EventSnoozed:
	case EventEnqueued, EventScheduled, EventLinedUp, EventReleased, EventBuried, EventCancelled, EventExpired,
		EventDiscarded:
		return time.Time{}, false
	}
	var ms *float64
	err := json.Unmarshal(strictjson.Member(e.Data, "duration_ms"), &ms)
	if err != nil || ms == nil || *ms < 0 || *ms > float64(maxRan/time.Millisecond) {
		return e.RecordedAt, e.Type == EventStarted
	}
	return e.RecordedAt.Add(-time.Duration(*ms * float64(time.Millisecond))), true
}
