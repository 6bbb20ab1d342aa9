package stream

import (
	"encoding/base64"

	"github.com/taskledger/taskledger/ledger"
)

// RecallSubject is where workers of a kind are told, in plain NATS and not on the stream, that
// somebody has appended to a task that they may be at; the message is its biz_id. It is a hint to
// read the head, and nothing rests on it.
func RecallSubject(kind ledger.Kind) string { return "taskledger.recall." + string(kind) }

// ProgressSubject is where workers of a kind tell, in plain NATS and not on the stream, how far
// their handlers are.
func ProgressSubject(kind ledger.Kind) string { return "taskledger.progress." + string(kind) }

// HandoverSubject is where a worker is told, in plain NATS and not on the stream, of tasks that are its
// own, by others that got their messages.
func HandoverSubject(worker string) string {
	return "taskledger.handover." + base64.RawURLEncoding.EncodeToString([]byte(worker))
}
