package stream

import (
	"encoding/base64"
	"strings"

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

// ReportSubject returns the subject on which the dispatcher receives the reports of a worker's session, whose name is
// one token.
func ReportSubject(session string) string { return reportPrefix + session }

// OfferSubject returns the subject on which a worker's session receives offers.
func OfferSubject(session string) string { return "taskledger.dispatch.to." + session }

// AllReports matches every [ReportSubject].
const AllReports = reportPrefix + "*"

const reportPrefix = "taskledger.dispatch.from."

// SessionOf returns the session of a [ReportSubject].
func SessionOf(subject string) string { return strings.TrimPrefix(subject, reportPrefix) }
