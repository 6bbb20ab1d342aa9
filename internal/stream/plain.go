package stream

import (
	"strings"

	"github.com/taskledger/taskledger/ledger"
)

// ProgressSubject returns the subject on which workers of a kind publish the progress of their handlers, in
// plain NATS and not on the stream.
func ProgressSubject(kind ledger.Kind) string { return "taskledger.progress." + string(kind) }

// ReportSubject returns the subject on which the dispatcher receives the reports of a worker's session. A session's
// name is one token.
func ReportSubject(session string) string { return reportPrefix + session }

// OfferSubject returns the subject on which a worker's session receives offers.
func OfferSubject(session string) string { return "taskledger.dispatch.to." + session }

// AllReports matches every [ReportSubject].
const AllReports = reportPrefix + "*"

const reportPrefix = "taskledger.dispatch.from."

// SessionOf returns the session of a [ReportSubject].
func SessionOf(subject string) string { return strings.TrimPrefix(subject, reportPrefix) }
