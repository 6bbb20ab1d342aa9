// Package stream is the wire format of events on NATS: the stream's name and settings, its subjects, and the conversion
// of an event to a message and back. It also contains the subjects of the dispatcher's messages.
//
// # Subjects
//
// An event is published on
//
//	ledger.<shard>.<type>.<kind>
//
// where the kind keeps its dots. Subscribers can therefore filter by shard, by type, by kind and by the first
// words of a kind: ledger.*.succeeded.coupon.> matches every coupon task that succeeded. The events of reserved
// kinds are on ledger.<shard>.taskledger-<type>.<kind>, so that such a filter matches the kinds of users alone.
//
// # Messages
//
// A message is a CloudEvent 1.0 in the binary mode of the NATS binding. Attributes are headers with the
// prefix "ce-". Their values are percent-encoded: space, '"', '%' and everything outside of printable ASCII.
// The body is the event's data as its producer gave it. A message that makes a task available carries the
// task's args instead.
//
//	ce-specversion   1.0
//	ce-id            <kind>/<biz_id>/<version>@<recorded_at in µs>, see ledger.Event.ID
//	ce-type          taskledger.<type>
//	ce-source        taskledger/<installation>
//	ce-subject       <kind>/<biz_id>
//	ce-time          recorded_at, RFC 3339 in UTC, to the microsecond
//	ce-task          version=<version>&attempt=<attempt>&position=<position in the ledger>
//	ce-taskfinishby  with args: the deadline of the whole task, RFC 3339, if it has one
//	traceparent      W3C trace context of the process that recorded the event, or, with
//	                 args, of the producer, if there is one
//	tracestate       of the same trace, as tracestate.Pass returns it: not percent-encoded,
//	                 since tracing libraries read it
//	watermill        with args that were published as a Watermill message: its metadata,
//	                 and its UUID if that is not the biz_id, as JSON
//	Nats-Expected-Last-Sequence
//	                 the sequence of the message before this one: the stream has one writer
//
// There is no ce-datacontenttype: the ledger stores the producer's data without a label.
package stream
