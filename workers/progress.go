package workers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// MaxProgressBytes is the longest progress or checkpoint that a handler may leave, as JSON.
const MaxProgressBytes = 16 << 10

// Progress says how far the handler is, for people to see: v as JSON becomes a progressed event
// (data.progress), beside the handler's transaction. Of what is said within a second the newest is
// recorded, and what is not by the end of the attempt never is. It is sent at once, at most ten
// times a second, in plain NATS on "taskledger.progress.<kind>", as JSON {"biz_id", "attempt",
// "progress"}: see stream.ProgressSubject.
//
// It does not wait for the database. It returns an [*ledger.InvalidError] if v has no JSON or one
// longer than [MaxProgressBytes]. It is safe for concurrent use.
func (j *Job) Progress(v any) error {
	text, err := marshalled("progress", v)
	if err != nil {
		return err
	}
	j.run.Progress(text, func() { j.sendProgress(text) })
	return nil
}

// sendProgress publishes how far the handler is, without waiting.
func (j *Job) sendProgress(text json.RawMessage) {
	data, _ := json.Marshal(struct { // text is JSON
		BizID    ledger.BizID    `json:"biz_id"`
		Attempt  ledger.Attempt  `json:"attempt"`
		Progress json.RawMessage `json:"progress"`
	}{j.BizID, j.Attempt, text})
	_ = j.run.kind.pool.config.NATS.Publish(stream.ProgressSubject(j.Kind), data) // a lost one is followed by others
}

// Checkpoint records how far the work is, for a later attempt to go on from there ([Job.Resume]):
// v as JSON becomes a progressed event (data.checkpoint). It returns when that is committed, which
// takes a transaction of its own each time; a handler that does so more than a few times a second
// floods its task's history.
//
// Errors: [*ledger.InvalidError] if v has no JSON or one longer than [MaxProgressBytes], or if the
// kind is ExactlyOnce: its rows are rolled back when an attempt fails, so nothing is left to go on
// from. [ErrFenced] if the claim is lost: return it. Any other: it may or may not be recorded.
func (j *Job) Checkpoint(v any) error {
	text, err := marshalled("checkpoint", v)
	if err != nil {
		return err
	}
	if j.run.kind.guarantee == ExactlyOnce {
		return &ledger.InvalidError{Field: "checkpoint", Rule: "is of no use to an ExactlyOnce handler: what it wrote is rolled back if it fails"}
	}
	return j.run.Note(ledger.EventProgressed, attempt.ProgressData{Checkpoint: text}.JSON())
}

// Resume reads the newest checkpoint of the task's earlier attempts, or of this one, into v. It
// reports whether there is one. It reads the task's history, in one statement.
func (j *Job) Resume(ctx context.Context, v any) (bool, error) {
	history, err := j.run.History(ctx)
	if err != nil {
		return false, err
	}
	for i := len(history) - 1; i >= 0; i-- {
		var data attempt.ProgressData
		if e := history[i]; e.Type != ledger.EventProgressed || json.Unmarshal(e.Data, &data) != nil || data.Checkpoint == nil {
			continue
		}
		if err := json.Unmarshal(data.Checkpoint, v); err != nil {
			return true, fmt.Errorf("checkpoint of version %d: %w", history[i].Version, err)
		}
		return true, nil
	}
	return false, nil
}

// marshalled returns v as JSON that an event can carry.
func marshalled(field string, v any) (json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, &ledger.InvalidError{Field: field, Rule: "must be JSON: " + err.Error()}
	}
	if len(text) > MaxProgressBytes {
		return nil, &ledger.InvalidError{Field: field, Rule: fmt.Sprintf("must have at most %d bytes, has %d", MaxProgressBytes, len(text))}
	}
	return text, nil
}
