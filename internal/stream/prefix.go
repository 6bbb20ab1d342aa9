package stream

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

// Prefix separates ledgers that share one NATS account. It precedes every subject and stream of its ledger: with the
// prefix shop they are shop.ledger.> and shop_LEDGER. It belongs to a connection, see [Prefix.Option], so that all
// users of the connection agree. The methods of Prefix are the only source of the names of subjects and streams.
type Prefix string

// None is the prefix of a ledger with an account of its own.
const None Prefix = ""

var prefixRule = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// taken are first words of other subjects: a prefix must not be one of them.
var taken = []string{prefix, "taskledger", "subscriber", "replay", "checkpoint"}

// Validate returns a [*ledger.InvalidError] if p is invalid.
func (p Prefix) Validate() error {
	fault := func(rule string) error {
		return &ledger.InvalidError{Field: "NATS prefix", Value: string(p), Rule: rule}
	}
	switch {
	case p == None:
		return nil
	case !prefixRule.MatchString(string(p)):
		return fault("must be 1 to 32 lower-case letters, digits, - or _, and begin with a letter")
	case slices.Contains(taken, string(p)):
		return fault("must not be " + strings.Join(taken, ", ") + ": subjects of every ledger begin with these words")
	}
	return nil
}

// inboxPrefix precedes the prefix in the inboxes of a connection with a prefix.
const inboxPrefix = "_INBOX.ledger."

// Option gives a connection the prefix. The inboxes of the connection contain it, so that permissions separate the
// answers to two ledgers too. An option that sets another prefix of inboxes must not follow. Connect returns the error
// of an invalid prefix.
func (p Prefix) Option() nats.Option {
	return func(o *nats.Options) error {
		if err := p.Validate(); err != nil || p == None {
			return err
		}
		return nats.CustomInboxPrefix(inboxPrefix + string(p))(o)
	}
}

// PrefixOf returns the prefix of a connection, which may be nil.
func PrefixOf(nc *nats.Conn) Prefix {
	if nc == nil {
		return None
	}
	p, _ := strings.CutPrefix(nc.Opts.InboxPrefix, inboxPrefix)
	if p == nc.Opts.InboxPrefix {
		return None
	}
	return Prefix(p)
}

// Inboxes matches the inboxes of the connections with the prefix.
func (p Prefix) Inboxes() string {
	if p == None {
		return nats.InboxPrefix + ">"
	}
	return inboxPrefix + string(p) + ".>"
}

// Stream returns the name of the stream.
func (p Prefix) Stream() string { return p.stream(Name) }

// ServedStream returns the name of the stream of a subscriber of taskledger serve subscriber.
func (p Prefix) ServedStream(subscriber string) string { return p.stream("SUBSCRIBER_" + subscriber) }

// stream returns the whole name of a stream, which begins in upper case and so differs from a prefix.
func (p Prefix) stream(name string) string {
	if p == None {
		return name
	}
	return string(p) + "_" + name
}

// subject returns the whole name of a subject.
func (p Prefix) subject(rest string) string {
	if p == None {
		return rest
	}
	return string(p) + "." + rest
}

// ServedSubject returns the subject on which a served subscriber receives the message with this subject, or filter, of
// the stream.
func (p Prefix) ServedSubject(subscriber, subject string) string {
	rest := strings.TrimPrefix(subject, p.subject(prefix)+".")
	return p.subject("subscriber." + subscriber + "." + rest)
}

// AllSubjects returns the filter that matches every event.
func (p Prefix) AllSubjects() string { return p.subject(AllSubjects) }

// Pattern returns a filter for the events of shards, types and kinds. Shard and type may be "*" for any; kinds may have
// wildcards as [ValidatePattern] allows. It matches reserved kinds only if the first word of kinds is theirs.
func (p Prefix) Pattern(shard, t, kinds string) string {
	if reserved.IsKind(kinds) && t != "*" {
		t = bookkeepingPrefix + t
	}
	return p.subject(prefix + "." + shard + "." + t + "." + kinds)
}

// OutcomeSubjects returns the filters that match the events with which tasks finish, of all kinds but reserved ones.
func (p Prefix) OutcomeSubjects() []string {
	var filters []string
	for _, row := range ledger.Transitions() {
		if row.To.Finished() {
			filters = append(filters, p.Pattern("*", string(row.Type), ">"))
		}
	}
	return filters
}

// CheckpointSubject returns the whole subject of a checkpoint of the seal, which begins with "checkpoint.".
func (p Prefix) CheckpointSubject(subject string) string { return p.subject(subject) }

// AllReplays matches the subjects to which the user operator may replay events.
func (p Prefix) AllReplays() string { return p.subject("replay.>") }

// ReplayStream returns the name of the stream of [Prefix.AllReplays].
func (p Prefix) ReplayStream() string { return p.stream("REPLAY") }

// Copies returns the subject on which relays and dispatchers ask whether a copy of their database works. Those that
// hold a lease answer. It is not on the stream.
func (p Prefix) Copies() string { return p.subject(Copies) }

// Wake returns the subject whose messages, of any content, wake the services of a ledger that sleep. It is not on the
// stream.
func (p Prefix) Wake() string { return p.subject(wake) }

// ProgressSubject returns the subject on which workers of a kind publish the progress of their handlers, in
// plain NATS and not on the stream. The kind may be ">".
func (p Prefix) ProgressSubject(kind ledger.Kind) string {
	return p.subject(progressPrefix + string(kind))
}

// ReportSubject returns the subject on which the dispatcher receives the reports of a worker's session. A session's
// name is one token.
func (p Prefix) ReportSubject(session string) string { return p.subject(reportPrefix + session) }

// AllReports matches every [Prefix.ReportSubject].
func (p Prefix) AllReports() string { return p.ReportSubject("*") }

// SessionOf returns the session of a [Prefix.ReportSubject].
func (p Prefix) SessionOf(subject string) string {
	return strings.TrimPrefix(subject, p.ReportSubject(""))
}

// OfferSubject returns the subject on which a worker's session receives offers.
func (p Prefix) OfferSubject(session string) string { return p.subject(offerPrefix + session) }
