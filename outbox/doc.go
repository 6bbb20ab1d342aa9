// Package outbox publishes the events of the ledger on NATS JetStream: every event that committed, and no other. No
// transaction waits for NATS.
//
// A [Relay] reads the feed of the ledger in pages. It publishes each page on the stream LEDGER, waits for all
// acknowledgements, and appends a row to taskledger.cursor. The next page begins at the newest cursor row, whichever
// relay wrote it.
//
// The stream is a pipe. It discards its oldest messages by age and size, and workers do not need it. A program that
// must not lose an event reads the ledger: by [Subscribe], taskledger serve subscriber, or read_feed in SQL.
//
// A subscriber may have [Tables] of its own, which are derived from the events and can be rebuilt. With them, or with
// [Park], if the handler fails for a page, its events are handled one at a time. The event that fails stops the
// subscriber, or is parked with the later events of its task; status reports it, and taskledger retry parked or discard
// parked continues. Tables of a higher version are built next to the tables in use and replace them when they have
// caught up. The command's rebuild does the same; its verify lists the rows that differ.
//
// # Messages
//
// The subject of an event is ledger.<shard>.<type>.<kind>, where the kind keeps its dots. For a reserved kind the type
// is taskledger-<type>, so that filters of types match only users' kinds. The message is a CloudEvent 1.0 in the binary
// mode of the NATS binding: attributes are headers, percent-encoded, and the body is the event's data, byte for byte.
// The body of a message that makes a task available (enqueued, released, interrupted) is the task's args.
//
//	ce-specversion   1.0
//	ce-id            <kind>/<biz_id>/<version>@<recorded_at in µs>
//	ce-type          taskledger.<type>
//	ce-source        taskledger/<installation>
//	ce-subject       <kind>/<biz_id>
//	ce-time          recorded_at, RFC 3339
//	ce-task          version=<version>&attempt=<attempt>&position=<position>
//	traceparent      the producer's, if it set one, with its tracestate
//	watermill        with args that were published as a Watermill message: metadata and UUID, as JSON
//
//	Nats-Expected-Last-Sequence  the sequence before the message's own
//
// # Delivery guarantees
//
//   - Every committed event is stored on the stream at least once, or parked in taskledger.parked with the
//     reason. An event of a transaction that rolled back is never published.
//   - The events of one task first appear in the order of their versions. The one exception is a parked event, for
//     which later events of its task do not wait. There is no order between tasks.
//   - An event is repeated on the stream, with the same ce-id, only after the stream has lost messages or after
//     taskledger rebase. Then a stretch is repeated in the same order.
//   - An event that cannot be published, because it exceeds a limit of the server or the stream, does not delay other
//     events. taskledger retry parked publishes it later.
//   - An open transaction delays no event of another transaction, see package internal/feed.
//
// If the feed's audit finds that an event was missed, which is a defect of this module, the relay publishes the event
// then. If it finds several, the relay publishes everything read since the last audit a second time.
// [Hook].EventsMissed reports them.
//
// # One writer
//
// Each message names the expected last sequence of the stream. A relay that does not know the end of the stream can
// store nothing there, however late its messages arrive: after its lease has ended, while it was stopped, or from a
// lost connection.
//
// The number alone does not keep the order. If another relay's message takes the place of a refused message, the number
// of the next message of the page is correct again. Therefore the next event of a task is sent only after the previous
// one is acknowledged: a page goes out in waves, each with at most one event of a task. This depends neither on clocks
// nor on the lease.
//
// # Sessions
//
// The relay that holds the lease works in sessions. A session
//
//  1. opens the feed at the newest cursor row, and creates the stream if it is missing;
//  2. waits for the messages that its connection has sent before;
//  3. compares the stream with the row's mark: when the stream was created, and its last sequence when everything
//     before the row was on it. If messages are lost at the end, it goes back to the newest row whose messages are all
//     there;
//  4. reads the messages behind the mark, which a relay has published without a row, and does not publish them again;
//  5. writes a row, if anything has changed, and publishes pages.
//
// Every irregularity ends the session: a refused message, a reconnect, an unexpected end of the stream. The next
// session starts without any memory of the previous one.
//
//	stand by --> lead: open --> publish --> irregular --> open
//	               |                                       |
//	               +--------> refused (in the lease) <-----+
//
// # Losses
//
//   - A relay is killed: another relay continues at the cursor row. It finds messages without a row in step 4.
//   - The stream ends too early, because JetStream has come back without its last messages: step 3.
//   - The stream is deleted or its disk is lost: the next session creates it, and goes back at most 100,000 positions
//     and to the oldest cursor row, so that new events wait for about 3 s.
//   - Messages are missing in the middle: nothing notices.
//   - JetStream stores nothing, or is full: events wait in the ledger, and the relay retries each second.
//   - PostgreSQL loses commits that were published, in a crash with synchronous_commit off, at the promotion of an
//     asynchronous standby, or by a recovery to a moment: step 4 finds messages without events. The relay counts and
//     logs them if one of these explains them, see [Hook].MessagesUndone.
//   - After a rebase there is no mark: all events are published again, behind the messages that are there.
//
// The relay must be the only writer of the stream. Another message in step 4 means that another program publishes
// there, or that a copy of the database is in use. Then [Relay.Run] returns a [*ForeignWriterError], which names the
// cure. Before a relay first uses the stream in a run of its server, it asks whether a relay or dispatcher of another
// copy works. It returns a [*CopyError] after an answer.
//
// # Concurrency properties
//
// Any number of relays may run; one works, and the others stand by. The lease that decides it is a row in
// taskledger.lease, so poolers in transaction mode work. The holder keeps it during outages of a server. Another relay
// takes it when it has expired, when the holder's connection to the database has ended, or when the holder has failed
// for twice its term and the other relay is connected to NATS. The lease only avoids double work: of two relays that
// both work, the stream accepts the messages of one, and the cursor its pages.
//
// A page that follows a previous page waits for up to 50 ms, so that events share pages. A single event does not wait,
// nor do events while a process waits for outcomes.
package outbox
