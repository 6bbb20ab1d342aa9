package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"math"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/head.sql
	headSQL string
	//go:embed sql/load.sql
	loadSQL string
	//go:embed sql/load_long.sql
	loadLongSQL string
	//go:embed sql/version_as_of.sql
	versionAsOfSQL string
)

// longTask is the number of a task's events above which the index event_long contains them.
const longTask = 64

// Load returns the task in db's snapshot, by folding its events. It needs no projection, so the task is always
// current. If the task has more than 64 events, Load reads the first 64 and, in a second statement, the newest of each
// type, the newest with args, and the number of failures.
//
// It returns [ErrUnknownTask] if the task does not exist, the [*InvalidError] of [Key.ValidateStored], and an
// [*IllegalError] if the events that it folds do not fold; [Fold] of the [History] checks all events.
func Load(ctx context.Context, db DB, k Key) (Task, error) {
	return loadUpTo(ctx, db, k, math.MaxInt32)
}

// LoadAsOf is [Load] for a moment in the past: it returns the task as a reader would have loaded it then. It returns
// [ErrUnknownTask] if the task did not exist.
func LoadAsOf(ctx context.Context, db DB, k Key, m Moment) (Task, error) {
	if m.IsZero() {
		return Load(ctx, db, k)
	}
	version, err := VersionAsOf(ctx, db, k, m)
	if err != nil {
		return Task{}, err
	}
	t, err := loadUpTo(ctx, db, k, version)
	if err != nil {
		return Task{}, fmt.Errorf("as of %s: %w", m, err)
	}
	return t, nil
}

// VersionAsOf returns the version of a task as of a moment, or its present version for the zero value. It reads some
// events, not the history. It returns [ErrUnknownTask] if the task did not exist.
func VersionAsOf(ctx context.Context, db DB, k Key, m Moment) (Version, error) {
	if err := k.ValidateStored(); err != nil {
		return 0, fmt.Errorf("version of %s: %w", k, err)
	}
	var version Version
	var isFound bool
	var err error
	if args := []any{string(k.Kind), string(k.BizID)}; m.IsZero() {
		var last string
		isFound, err = pgquery.Row(ctx, db, headSQL, args, (*int32)(&version), &last)
	} else {
		args = append(args, m.passedArgs()...)
		isFound, err = pgquery.Row(ctx, db, versionAsOfSQL, args, (*int32)(&version))
	}
	switch {
	case err != nil:
		return 0, pgerr.Explain("version of "+k.String(), err)
	case !isFound || version == 0:
		return 0, unknownTask(ctx, db, k)
	}
	return version, nil
}

// loadUpTo returns the task after the event of a version, or after its last event.
func loadUpTo(ctx context.Context, db DB, k Key, version Version) (Task, error) {
	limit := min(int64(version), longTask+1)
	first, err := readHistory(ctx, db, k, loadSQL, string(k.Kind), string(k.BizID), limit)
	if err != nil {
		return Task{}, err
	}
	t, err := Fold(first[:min(len(first), longTask)])
	if err == nil && len(first) > longTask {
		t, err = t.applyLong(ctx, db, version)
	}
	if err != nil {
		return Task{}, fmt.Errorf("load %s: %w", k, err)
	}
	return t, nil
}

// later contains the facts that decide the state of a task after its first events.
type later struct {
	newest   []Event // of each type, and the newest with args, oldest first; the last one is the head
	failures int     // since the task was last finished, or since the first events
	released bool    // the task was finished and then released or enqueued again, after the first events
}

// applyLong returns the task after later events up to a version, as the fold does.
func (t Task) applyLong(ctx context.Context, db DB, last Version) (Task, error) {
	rows, err := db.Query(ctx, loadLongSQL, string(t.Kind), string(t.BizID), int64(last))
	if err != nil {
		return t, pgerr.Explain("load "+t.Key.String(), err)
	}
	var l later
	for e, err := range scanEvents(rows, &l.failures, &l.released) {
		if err != nil {
			return t, pgerr.Explain("load "+t.Key.String(), err)
		}
		if n := len(l.newest); n > 0 && l.newest[n-1].Version == e.Version {
			continue // the newest of its type, with the args
		}
		l.newest = append(l.newest, e)
	}
	if len(l.newest) == 0 { // the snapshot is older than the first statement's
		return t, ErrRetryTransaction
	}
	return t.applyLater(l), nil
}

// applyLater returns the task after later events.
func (t Task) applyLater(l later) Task {
	head := l.newest[len(l.newest)-1]
	next := t
	next.State, next.Version, next.Attempt = head.Type.State(), head.Version, head.Attempt
	next.Priority, next.Partition, next.OrderKey = head.Priority, head.Partition, head.OrderKey
	next.UpdatedAt, next.Actor, next.DueAt = head.RecordedAt, head.Actor, head.DueAt()
	next.LostInARow, next.Fingerprint = t.lostBefore(l.newest), ""
	next.Reason, next.Progress = head.reason(), head.progress()
	if next.Failures = l.failures; !l.released && !t.State.Finished() {
		next.Failures += t.Failures
	}
	for _, e := range l.newest {
		if failures := next.Failures; e.HasArgs() {
			next.setArgs(e)
			next.Failures = failures
		}
		switch e.Type {
		case EventFailed, EventBuried:
			next.Error = e.ErrorText()
		case EventSucceeded:
			next.Result = e.result()
		case EventEnqueued, EventScheduled, EventLinedUp, EventReleased, EventStarted, EventProgressed,
			EventInterrupted, EventSnoozed, EventCancelled, EventExpired, EventDiscarded:
		}
	}
	if head.Type == EventBuried {
		next.Fingerprint = head.ErrorFingerprint()
	}
	return next
}

// lostBefore returns the number of consecutive attempts without an outcome before the head's: attempts that began
// since the newest event of another type, except the first, which follows a release.
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
