// Package outbox carries the events of the ledger to NATS JetStream: every one that committed,
// none that did not, without anybody's transaction waiting for NATS.
//
// A [Relay] reads the feed of the ledger in pages, publishes each page on the stream LEDGER,
// waits for all acknowledgements, and appends a row to taskledger.cursor. The cursor is where
// the next page begins, whatever happened to the relay that wrote it.
//
// # Messages
//
// An event is published on the subject ledger.<shard>.<type>.<kind>, where the kind keeps its
// dots, as a CloudEvent 1.0 in the binary mode of the NATS binding: attributes are headers,
// percent-encoded, and the body is the event's data as its producer gave it. Messages that make
// a task available (enqueued, released, interrupted) carry the task's args instead.
//
//	ce-specversion   1.0
//	ce-id            <kind>/<biz_id>/<version>@<recorded_at in µs>
//	ce-type          taskledger.<type>
//	ce-source        taskledger/<installation>
//	ce-subject       <kind>/<biz_id>
//	ce-time          recorded_at, RFC 3339
//	ce-taskversion, ce-taskattempt, ce-taskposition
//	traceparent      of the producer, if it left one, and tracestate beside it
//	watermill        beside args that a [Publisher] published: metadata and UUID, as JSON
//	Nats-Msg-Id      <ce-id>#<generation>
//
// # What is delivered
//
//   - Every committed event is stored on the stream at least once, or parked in
//     taskledger.parked with the reason. An event of a transaction that rolled back never is.
//   - The events of one task appear for the first time in the order of their versions. What is
//     published again, after a crash or a loss, repeats earlier messages in that order too.
//     There is no order between tasks. (The one exception: a replicated stream that changes its
//     leader in the middle of a page may store a later message of the page and refuse an
//     earlier one. The page is published again, so nothing is lost. And an event that the audit
//     of the feed found missing, which is a defect of ours, is published when it was found; if
//     they are several, everything read since the last audit is published again with them.
//     [Observer].Missed tells.)
//   - A message may come more than once: ce-id tells. The stream drops most repetitions itself,
//     by their message ids, for two minutes.
//   - An event that cannot be published, because it is larger than the server or the stream
//     takes, holds up nobody.
//   - Nobody's open transaction holds up an event of another, see [ledger.Feed].
//
// # What is lost and comes back
//
// The stream is derived data. Every cursor row notes what the stream was like: when it was
// made, its last sequence and the message there, what was missing. When a relay begins, after a
// reconnect, every [Config].CheckEvery, and on every acknowledgement, the stream is compared
// with that. If it was made anew, ends too early, begins too late, has holes, or takes messages
// for duplicates of what is not there, the relay goes back to the newest cursor row before
// which everything is certainly there, and publishes again from it, under a new generation in
// the message ids so that nothing is taken for a duplicate. Of the tasks before that row it
// publishes the work message of each one that is available or running. Messages that have
// reached their age, and what the relay itself purged because everybody had acknowledged it,
// are no losses.
//
// # Concurrency
//
// Any number of relays may run; one works, the others stand by. Who works is a row in
// taskledger.lease, not a session's lock, so poolers in transaction mode are fine. The lease
// saves double work and nothing else: a relay that stalls, loses it and wakes up may publish its
// page once more, and cannot move the cursor. Its messages are repetitions, or first
// appearances of what its successor will repeat.
//
// The relay is the only writer of the stream. A message there that it did not send means that
// somebody else publishes, or that the database has forgotten what it once sent: it was
// restored, or failed over with losses. Then the relay refuses to go on, with a
// [*ForeignWriterError] that names the cure. Messages of its own whose events the last crash of
// PostgreSQL has undone, where producers do not wait for the disk, are counted and logged.
//
// # A slow or full stream
//
// A stream that refuses, is full, or is away makes events wait in the ledger; writers do not
// notice. From 80 % of its limit on, the relay removes from the stream what every durable
// consumer has acknowledged and no kind without workers waits for. A subscriber without a
// durable consumer is not waited for.
//
// # Crash points
//
// [FaultPage] and [FaultPublished] name the places where tests and the demo kill a relay.
package outbox
