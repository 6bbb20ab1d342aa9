package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// maxProgressBytes bounds a progress report or checkpoint, as JSON.
const maxProgressBytes = 16 << 10

// Progress reports how far the handler is, for display. v as JSON becomes a progressed event (data.progress), outside
// the handler's transaction. At most one event a second is recorded, and one in a hundredth of the time for which the
// attempt has run, with the newest report; a report that is not recorded by the end of the attempt is dropped.
//
// Each report is also published at once, but at most ten times a second, in plain NATS on
// "taskledger.progress.<kind>", as JSON {"biz_id", "attempt", "progress"}: see stream.Prefix.
//
// It does not wait for the database. It returns an [*ledger.InvalidError] if v cannot be marshalled, or is longer
// than 16 KiB as JSON. It is safe for concurrent use.
func (j *Job) Progress(v any) error {
	text, err := marshal("progress", v)
	if err != nil {
		return err
	}
	j.run.Progress(text, func() { j.sendProgress(text) })
	return nil
}

// sendProgress publishes a progress report without waiting.
func (j *Job) sendProgress(text json.RawMessage) {
	publishProgress(j.run.kind.pool.config.NATS, j.Key, j.Attempt, text)
}

// Checkpoint records how far the work is, so that a later attempt can continue from there ([Job.Resume]): v as JSON
// becomes a progressed event (data.checkpoint). It returns when that is committed, in a transaction of its own each
// time. More than a few checkpoints a second flood the task's history.
//
// It returns an [*ledger.InvalidError] if v cannot be marshalled, is longer than 16 KiB as JSON, or the
// kind is ExactlyOnce, whose rows are rolled back when an attempt fails. It returns [ErrFenced] if another process
// appended to the task: return it. After any other error it may or may not be recorded.
func (j *Job) Checkpoint(v any) error {
	text, err := marshal("checkpoint", v)
	if err != nil {
		return err
	}
	if j.run.kind.guarantee == ExactlyOnce {
		return &ledger.InvalidError{
			Field: "checkpoint",
			Rule:  "must not be used by an ExactlyOnce handler, whose writes are rolled back if it fails",
		}
	}
	return j.run.Note(ledger.EventProgressed, attempt.ProgressData{Checkpoint: text}.JSON())
}

// Resume decodes the newest checkpoint of the task's earlier attempts, or of this one, into v. It reports whether
// there is one. It takes one statement, which reads only the progress reports since that checkpoint.
func (j *Job) Resume(ctx context.Context, v any) (bool, error) {
	o := ledger.NewestOptions{Types: []ledger.EventType{ledger.EventProgressed}, Contains: `"checkpoint"`, Limit: 1}
	for {
		newest, err := j.run.Newest(ctx, o)
		if err != nil || len(newest) == 0 {
			return false, err
		}
		for _, e := range slices.Backward(newest) {
			if checkpoint := strictjson.Member(e.Data, "checkpoint"); checkpoint != nil {
				if err := json.Unmarshal(checkpoint, v); err != nil {
					return true, fmt.Errorf("checkpoint of version %d: %w", e.Version, err)
				}
				return true, nil
			}
		}
		o.Before, o.Limit = newest[0].Version, maxReportsRead // they contain the text elsewhere
	}
}

// maxReportsRead bounds how many progress reports Resume reads at once.
const maxReportsRead = 100

// marshal returns v as JSON that an event can carry.
func marshal(field string, v any) (json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, &ledger.InvalidError{Field: field, Rule: "must be JSON: " + err.Error()}
	}
	if len(text) > maxProgressBytes {
		return nil, &ledger.InvalidError{
			Field: field, Rule: fmt.Sprintf("must have at most %d bytes, got %d", maxProgressBytes, len(text)),
		}
	}
	return text, nil
}
