package ledger

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/taskledger/taskledger/internal/pgerr"
)

var (
	//go:embed sql/load.sql
	loadSQL string
	//go:embed sql/load_long.sql
	loadLongSQL string
)

// longTask is the number of events of a task from which on the index event_long has them.
const longTask = 64

// Load returns the task in db's snapshot, by folding its events. It needs no projection, so the task is
// always current. Of a task with more than 64 events it reads the first 64, the newest of each type, and the number of
// failures, in a second statement.
//
// It returns [ErrUnknownTask] if the task does not exist, the [*InvalidError] of [Key.ValidateStored], and an
// [*IllegalError] if the events that it folds do not fold; [Fold] of the [History] checks all events.
func Load(ctx context.Context, db DB, k Key) (Task, error) {
	first, err := readHistory(ctx, db, k, loadSQL, string(k.Kind), string(k.BizID), int64(longTask+1))
	if err != nil {
		return Task{}, err
	}
	t, err := Fold(first[:min(len(first), longTask)])
	if err == nil && len(first) > longTask {
		t, err = t.applyLong(ctx, db)
	}
	if err != nil {
		return Task{}, fmt.Errorf("load %s: %w", k, err)
	}
	return t, nil
}

// later is what decides the state of a task after its first events.
type later struct {
	newest   []Event // of each type, oldest first; the last one is the head
	failures int     // since the last release from a finished state, or since the first events
	released bool    // the task was released from a finished state after the first events
}

// applyLong returns the task after all later events, as the fold does.
func (t Task) applyLong(ctx context.Context, db DB) (Task, error) {
	rows, err := db.Query(ctx, loadLongSQL, string(t.Kind), string(t.BizID))
	if err != nil {
		return t, pgerr.Explain("load "+t.Key.String(), err)
	}
	var l later
	for e, err := range ScanEvents(rows, &l.failures, &l.released) {
		if err != nil {
			return t, pgerr.Explain("load "+t.Key.String(), err)
		}
		l.newest = append(l.newest, e)
	}
	if len(l.newest) == 0 { // of a snapshot before that of the first events
		return t, ErrRetryTransaction
	}
	return t.applyLater(l), nil
}

// applyLater returns the task after later events.
func (t Task) applyLater(l later) Task {
	head := l.newest[len(l.newest)-1]
	next := t
	next.State, next.Version, next.Attempt = head.Type.State(), head.Version, head.Attempt
	next.UpdatedAt, next.Actor, next.DueAt = head.RecordedAt, head.Actor, head.DueAt()
	next.LostInARow, next.Fingerprint = t.lostBefore(l.newest), ""
	next.Reason, next.Progress = head.reason(), head.progress()
	if next.Failures = l.failures; !l.released && !t.State.Finished() {
		next.Failures += t.Failures
	}
	for _, e := range l.newest {
		switch e.Type {
		case EventFailed, EventBuried:
			next.Error = e.ErrorText()
		case EventSucceeded:
			next.Result = e.result()
		case EventEnqueued, EventScheduled, EventReleased, EventStarted, EventProgressed, EventInterrupted,
			EventSnoozed, EventCancelled, EventExpired, EventDiscarded:
		}
	}
	if head.Type == EventBuried {
		next.Fingerprint = head.ErrorFingerprint()
	}
	return next
}

// lostBefore returns the number of consecutive attempts without an outcome before that of the head: those that began
// since the newest event of another type, without the first of them, which follows a release.
func (t Task) lostBefore(newest []Event) int {
	head := newest[len(newest)-1]
	if head.Type.State() != StateRunning {
		return 0
	}
	began := 0
	if t.State == StateRunning {
		began = t.LostInARow + 1 // the attempts that ran after the first events
	}
	before := t.Attempt
	for _, e := range newest {
		if e.Type.State() != StateRunning {
			before, began = e.Attempt, 0
		}
	}
	return began + int(head.Attempt-before) - 1
}
