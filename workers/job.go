package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// maxResultBytes bounds the result of a handler, as JSON.
const maxResultBytes = 256 << 10

// Job is one attempt at a task, as its handler sees it.
type Job struct {
	ledger.Key
	// Attempt counts the attempts of this task, from 1. Key and Attempt together identify this attempt; the Key alone
	// is the idempotency key of the task's effects.
	Attempt ledger.Attempt
	// Version is the version of the event that made the task available.
	Version ledger.Version
	// AvailableAt is when the task was made available, by the database's clock.
	AvailableAt time.Time
	// Traceparent is the producer's W3C trace context, "" if there was not one. Tracestate is the producer's,
	// shortened as W3C requires.
	Traceparent, Tracestate string
	// Envelope is the JSON that a messaging library stored with the args when it published the task: the member
	// "watermill" of the task's meta, which package watermill decodes. It is "" for other producers.
	Envelope string

	run      *run
	delivery *delivery // of a gateway, once the handler has begun

	mu     sync.Mutex // guards result
	result json.RawMessage
}

// String returns key and attempt, such as "coupon.send/A-1, attempt 2". Its form may change.
func (j *Job) String() string { return fmt.Sprintf("%s, attempt %d", j.Key, j.Attempt) }

// Logger returns a logger with the task and the attempt.
func (j *Job) Logger() *slog.Logger {
	return j.run.kind.pool.config.Logger.With(
		"kind", string(j.Kind), "biz_id", string(j.BizID), "attempt", int(j.Attempt))
}

// TraceContext parses Traceparent and Tracestate, the producer's trace context when it enqueued the task. It returns
// false if there is no valid one. An attempt may run long after that, and more than once: begin a new span with a
// link to it, rather than a child. docs/hooks.md shows how.
func (j *Job) TraceContext() (ledger.TraceContext, bool) {
	c, err := ledger.ParseTraceparent(j.Traceparent)
	if err != nil {
		return c, false
	}
	c.State = j.Tracestate
	return c, true
}

// Cause returns the cause that tasks enqueued with the handler's context record: the event that made this task
// available, and its producer's trace. See [ledger.WithCause].
func (j *Job) Cause() (event, traceparent, tracestate string) {
	return j.run.Task().Message.ID(), j.Traceparent, j.Tracestate
}

// PreviousError is one failed attempt of a task.
type PreviousError struct {
	Attempt ledger.Attempt `json:"attempt"`
	At      time.Time      `json:"at"`
	Message string         `json:"message"` // shortened
}

// PreviousErrors returns the failed attempts of the task since it was last released from a finished state, at most the
// last 100, oldest first. It takes one statement.
func (j *Job) PreviousErrors(ctx context.Context) ([]PreviousError, error) {
	failures, err := j.run.Failures(ctx)
	if err != nil {
		return nil, err
	}
	var all []PreviousError
	for _, f := range failures {
		all = append(all, PreviousError(f))
	}
	return all, nil
}

// Predecessors returns the tasks after which this one became available, in the order of
// [ledger.EnqueueOptions].After: [ledger.ResultOf] decodes their results. It returns nil for a task without After. It
// takes two statements. The login of a worker that is limited to kinds reads the predecessors of its kinds alone.
func (j *Job) Predecessors(ctx context.Context) ([]ledger.Task, error) {
	return j.run.Predecessors(ctx)
}

// Result stores a value in the succeeded event (data.result) if the attempt succeeds; the last call counts. It
// returns an [*ledger.InvalidError] if v cannot be marshalled, or is longer than 256 KiB as JSON. It is safe
// for concurrent use.
func (j *Job) Result(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return &ledger.InvalidError{Field: "result", Rule: "must be JSON: " + err.Error()}
	}
	if len(text) > maxResultBytes {
		return &ledger.InvalidError{Field: "result", Rule: fmt.Sprintf(
			"must have at most %d bytes, got %d: store it elsewhere and leave a reference", maxResultBytes, len(text))}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result = text
	return nil
}

// loadResult returns the value that Result stored.
func (j *Job) loadResult() json.RawMessage {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.result
}
