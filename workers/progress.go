package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// MaxProgressBytes is the longest progress or checkpoint that a handler may leave, as JSON.
const MaxProgressBytes = 16 << 10

const (
	progressEvery = time.Second            // at most one event
	liveEvery     = 100 * time.Millisecond // at most one message
)

var errOver = errors.New("the attempt is over")

// progressData is the data of a progressed event.
type progressData struct {
	Progress   json.RawMessage `json:"progress,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
}

// progress is what a handler says of how far it is, the newest of which is to be recorded.
type progress struct {
	mu       sync.Mutex
	newest   json.RawMessage // nil: it is on record
	recorded time.Time       // when the last event was begun
	sent     time.Time       // when the last message was
	timer    *time.Timer     // until the next event; nil: none is due
	over     bool
}

// stop drops what is not recorded: the outcome of the attempt says more.
func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

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
	p, now := &j.attempt.progress, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil
	}
	p.newest = text
	if now.Sub(p.sent) >= liveEvery {
		p.sent = now
		j.attempt.sendProgress(text)
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(max(0, progressEvery-now.Sub(p.recorded)), j.attempt.noteProgress)
	}
	return nil
}

// noteProgress records the newest progress.
func (a *attempt) noteProgress() {
	p := &a.progress
	p.mu.Lock()
	text := p.newest
	p.newest, p.timer, p.recorded = nil, nil, time.Now()
	p.mu.Unlock()
	if text == nil {
		return
	}
	data, _ := json.Marshal(progressData{Progress: text}) // is JSON
	if err := a.note(ledger.EventProgressed, data); err != nil && !errors.Is(err, errOver) {
		a.kind.logger.Warn("progress is not recorded", "biz_id", string(a.job.BizID), "error", err)
	}
}

// sendProgress tells whoever listens now.
func (a *attempt) sendProgress(text json.RawMessage) {
	if a.caller != nil {
		return // who would follow it does not know the task yet
	}
	data, _ := json.Marshal(struct { // is JSON
		BizID    ledger.BizID    `json:"biz_id"`
		Attempt  ledger.Attempt  `json:"attempt"`
		Progress json.RawMessage `json:"progress"`
	}{a.job.BizID, a.job.Attempt, text})
	_ = a.kind.pool.config.NATS.Publish(stream.ProgressSubject(a.job.Kind), data) // nobody may listen anyway
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
	if j.attempt.kind.guarantee == ExactlyOnce {
		return &ledger.InvalidError{Field: "checkpoint", Rule: "is of no use to an ExactlyOnce handler: what it wrote is rolled back if it fails"}
	}
	data, err := json.Marshal(progressData{Checkpoint: text})
	if err != nil {
		return err
	}
	return j.attempt.note(ledger.EventProgressed, data)
}

// Resume reads the newest checkpoint of the task's earlier attempts, or of this one, into v. It
// reports whether there is one. It reads the task's history, in one statement.
func (j *Job) Resume(ctx context.Context, v any) (bool, error) {
	history, err := ledger.History(ctx, j.attempt.db(), j.Key)
	if err != nil {
		return false, err
	}
	for i := len(history) - 1; i >= 0; i-- {
		var data progressData
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
