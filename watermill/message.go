package watermill

import (
	"context"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// TxFromContext returns the transaction of the attempt that a message's context belongs to, for handlers of [Handle]
// and for middleware. It is subject to the rules of [workers.Handle]. It returns false if the attempt runs without a
// transaction, or the context belongs to no attempt.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	if a := attemptOf(ctx); a != nil && a.tx != nil {
		return a.tx, true
	}
	return nil, false
}

// JobFromContext returns the attempt that a message's context belongs to. It returns false for other contexts.
func JobFromContext(ctx context.Context) (*workers.Job, bool) {
	if a := attemptOf(ctx); a != nil {
		return a.job, true
	}
	return nil, false
}

// attempt is the attempt of a message, a value of the message's context.
type attempt struct {
	tx     pgx.Tx // nil: the kind runs without a transaction
	job    *workers.Job
	reason atomic.Pointer[error] // of a nack, if ReportErrors stored one
}

type attemptKey struct{}

// attemptOf returns the attempt that a context belongs to, or nil.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// newMessage returns the message of an attempt.
func newMessage(ctx context.Context, tx pgx.Tx, job *workers.Job, args []byte) (*message.Message, *attempt, error) {
	opened, err := envelope.Open(job.BizID, args, job.Envelope, job.Traceparent, job.Tracestate)
	if err != nil {
		return nil, nil, workers.InvalidArgs(err)
	}
	msg := messageOf(opened)
	a := &attempt{tx: tx, job: job}
	msg.SetContext(context.WithValue(ctx, attemptKey{}, a))
	return msg, a, nil
}

// messageOf returns a message of Watermill.
func messageOf(e envelope.Message) *message.Message {
	m := message.NewMessage(e.UUID, e.Payload)
	m.Metadata = e.Metadata
	return m
}

// entryOf returns the task that a message becomes: see [envelope.Entry].
func entryOf(topic string, m *message.Message) (ledger.Entry, error) {
	if m == nil {
		return ledger.Entry{}, &ledger.InvalidError{Field: "message", Rule: "must not be nil"}
	}
	return envelope.Entry(topic, envelope.Message{UUID: m.UUID, Payload: m.Payload, Metadata: m.Metadata})
}
