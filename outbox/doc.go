// Package outbox publishes the events of the ledger on NATS JetStream: every event that committed, and no
// other. No transaction waits for NATS.
//
// A [Relay] reads the feed of the ledger in pages. It publishes each page on the stream LEDGER, waits for
// all acknowledgements, and appends a row to taskledger.cursor. The next page begins at the newest cursor
// row, whichever relay wrote it.
//
// The stream is a pipe. It discards its oldest messages by age and size, and workers do not need it. A program that
// must not lose an event reads the ledger: [Subscribe], [ServeSubscriber], or read_feed in SQL.
//
// # Messages
//
// The subject of an event is ledger.<shard>.<type>.<kind>, where the kind keeps its dots. That of a reserved kind has
// taskledger-<type> instead, so that filters of types match the kinds of users alone. The message is a
// CloudEvent 1.0 in the binary mode of the NATS binding: attributes are headers, percent-encoded, and the
// body is the event's data, byte for byte. A message that makes a task available (enqueued, released,
// interrupted) has the task's args as body.
//
//	ce-specversion   1.0
//	ce-id            <kind>/<biz_id>/<version>@<recorded_at in µs>
//	ce-type          taskledger.<type>
//	ce-source        taskledger/<installation>
//	ce-subject       <kind>/<biz_id>
//	ce-time          recorded_at, RFC 3339
//	ce-task          version=<version>&attempt=<attempt>&position=<position>
//	traceparent      of the producer, if it set one, and tracestate beside it
//	watermill        beside args that were published as a Watermill message: metadata and UUID, as JSON
//
//	Nats-Expected-Last-Sequence  the sequence before the message's own
//
// # Delivery guarantees
//
//   - Every committed event is stored on the stream at least once, or parked in taskledger.parked with the
//     reason. An event of a transaction that rolled back is never published.
//   - The events of one task appear for the first time in the order of their versions. The one exception is a parked
//     event, which later events of its task do not wait for. There is no order between tasks.
//   - An event is on the stream again, with the same ce-id, only after the stream has lost messages and after a rebase.
//     Then a stretch is repeated in the same order.
//   - An event that cannot be published, because it exceeds a limit of the server or the stream, delays no
//     other event. [RetryParked] publishes it later.
//   - An open transaction delays no event of another transaction, see package ledger/feed.
//
// An event that the feed's audit found missing, which is a defect of this module, is published when it is found. If
// there are several, the relay publishes everything read since the last audit a second time. [Hook].EventsMissed
// reports them.
//
// # One writer
//
// Each message names the sequence that the stream must end with. A relay that does not know the end of the stream
// stores nothing there, however late its messages arrive: after its lease has ended, while it was stopped, or from a
// connection that was lost.
//
// The number alone does not keep the order. If the message of another relay takes the place of one that is refused, the
// next message of the page fits by its number. So the next event of a task is sent when the one before is acknowledged:
// a page goes out in waves, each with at most one event of a task. Neither clocks nor the lease take part in this.
//
// # Sessions
//
// A relay that has the lease works in sessions. A session
//
//  1. opens the feed at the newest cursor row, and makes the stream if it is missing;
//  2. waits for the messages that its connection has sent before;
//  3. compares the stream with the row's mark: when the stream was created, and its last sequence when everything
//     before the row was on it. If messages are lost at the end, it goes back to the newest row whose messages are all
//     there;
//  4. reads the messages behind the mark, which a relay has published without a row, and does not publish them again;
//  5. writes a row, if anything has changed, and publishes pages.
//
// Every irregularity ends the session: a refused message, a reconnect, a stream with another end. Another one follows.
// It knows nothing of the session before.
//
//	stand by --> lead: open --> publish --> irregular --> open
//	               |                                       |
//	               +--------> refused (in the lease) <-----+
//
// # Losses
//
//   - A relay is killed: another one goes on at the cursor row. It finds messages without a row in step 4.
//   - The stream ends too early, because JetStream came back with less than it had: step 3.
//   - The stream is deleted or its disk is lost: the next session makes it, and goes back at most 100,000 positions and
//     to the oldest cursor row, so that new events wait for about 3 s.
//   - Messages are missing in the middle: nothing notices.
//   - JetStream stores nothing, or has no room: events wait in the ledger, and the relay tries again each second.
//   - PostgreSQL loses commits that were published, in a crash with synchronous_commit off, at the promotion of an
//     asynchronous standby, or by a recovery to a moment: step 4 finds messages without events. The relay counts and
//     logs them if that explains them, see [Hook].MessagesUndone.
//   - After a rebase there is no mark: all events are published again, behind the messages that are there.
//
// The relay must be the only writer of the stream. Another message in step 4 means that another program publishes
// there, or that a copy of the database is in use. Then [Relay.Run] returns a [*ForeignWriterError], which names the
// cure. Before it uses the stream for the first time in a run of its server, a relay asks whether a relay or dispatcher
// of another copy works, and returns a [*CopyError] after an answer.
//
// # Concurrency properties
//
// Any number of relays may run; one works, and the others stand by. The lease that decides it is a row in
// taskledger.lease, so poolers in transaction mode work. The holder keeps it while a server is away. Another
// relay takes it when it has expired, when the holder's connection to the database has ended, or when the
// holder has failed for twice its term and the other relay is connected to NATS. The lease avoids double work only: of
// two relays that both work, the stream accepts each message of one, and the cursor the pages of one.
//
// A page that follows another one waits for up to 50 ms, so that events share pages. A single event does not wait, nor
// do events while a process waits for outcomes.
//
// # Crash points
//
// [FaultPage], [FaultPublished] and [FaultHandled] are the places where tests and the demo kill a relay or a
// subscriber.
package outbox
