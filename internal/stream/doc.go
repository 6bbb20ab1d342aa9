// Package stream is the wire format that relay and workers share: the stream's name and
// settings, its subjects, the durable names of consumers, and how an event becomes a message
// and back.
//
// # Subjects
//
// An event is published on
//
//	ledger.<shard>.<type>.<kind>
//
// where the kind keeps its dots, so that subscribers can filter by shard, by type, by kind and
// by a kind's first words: ledger.*.succeeded.coupon.> is every coupon task that succeeded.
//
// # Messages
//
// A message is a CloudEvent 1.0 in the binary mode of the NATS binding: attributes are headers
// with the prefix "ce-", their values percent-encoded (space, '"', '%' and everything outside
// of printable ASCII); the body is the event's data as its producer gave it. A message that
// makes a task available carries the task's args instead, so that a worker needs nothing else.
//
//	ce-specversion   1.0
//	ce-id            <kind>/<biz_id>/<version>@<recorded_at in µs>, see ledger.Event.ID
//	ce-type          taskledger.<type>
//	ce-source        taskledger/<installation>
//	ce-subject       <kind>/<biz_id>
//	ce-time          recorded_at, RFC 3339 in UTC, to the microsecond
//	ce-taskversion   the event's version
//	ce-taskattempt   the event's attempt
//	ce-taskposition  the event's position in the ledger
//	ce-taskfinishby  beside args: the deadline of the whole task, RFC 3339, if it has one
//	traceparent      W3C trace context of who recorded the event, or, beside args, of the producer,
//	                 if there is one
//	tracestate       beside it, as tracestate.Pass returns it: not percent-encoded, since it
//	                 is for the libraries of tracing
//	watermill        beside args that were published as a Watermill message: its metadata, and
//	                 its UUID if that is not the biz_id, as JSON
//	Nats-Msg-Id      <ce-id>#<generation>
//
// The generation counts how often the stream was found to have lost messages; it is part of
// the message id so that what is published again is not taken for a duplicate of what was lost.
// There is no ce-datacontenttype: the ledger stores what a producer gave and does not label it.
package stream
