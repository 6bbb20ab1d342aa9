package stream

import (
	"encoding/base64"

	"github.com/taskledger/taskledger/ledger"
)

// RecallSubject returns the subject on which workers of a kind learn that an event was appended to a task
// that they may be running. The message is its biz_id. It is sent in plain NATS and not on the stream, as a
// hint to read the head: losing it is harmless.
func RecallSubject(kind ledger.Kind) string { return "taskledger.recall." + string(kind) }

// ProgressSubject returns the subject on which workers of a kind publish the progress of their handlers, in
// plain NATS and not on the stream.
func ProgressSubject(kind ledger.Kind) string { return "taskledger.progress." + string(kind) }

// HandoverSubject returns the subject on which a worker receives its own tasks from workers that received
// their messages, in plain NATS and not on the stream.
func HandoverSubject(worker string) string {
	return "taskledger.handover." + base64.RawURLEncoding.EncodeToString([]byte(worker))
}
