// Package outbox publishes the events of the ledger on NATS JetStream: every event that committed, and no
// other. No transaction waits for NATS.
//
// A [Relay] reads the feed of the ledger in pages. It publishes each page on the stream LEDGER, waits for
// all acknowledgements, and appends a row to taskledger.cursor. The next page begins at the newest cursor
// row, whichever relay wrote it.
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
//	Nats-Msg-Id      <ce-id>#<generation>, on a stream with replicas, while lost messages are published
//	                 again, and on withheld events that the next event of their task overtakes
//
// # Delivery guarantees
//
//   - Every committed event is stored on the stream at least once, or parked in taskledger.parked with the
//     reason. An event of a transaction that rolled back is never published.
//   - The events of one task appear for the first time in the order of their versions. There is no order
//     between tasks. A stretch that is published again, after a crash or a loss, repeats earlier messages
//     in the same order. An event that made its task available, and that its kind has withheld, is left out if the next
//     event of its task comes while the stream is nearly full, see Backpressure.
//   - A message may be stored more than once, with the same ce-id. Most repetitions are avoided for two minutes, the
//     duplicate window of the stream: a relay that begins publishes nothing that it finds at the end of the stream. On
//     a stream with replicas, and after a loss, the stream drops repetitions by their message ids.
//   - An event that cannot be published, because it exceeds a limit of the server or the stream, delays no
//     other event. [RetryParked] publishes it later.
//   - An open transaction delays no event of another transaction, see package ledger/feed.
//
// The order of first appearance has three exceptions. A parked event that an operator publishes again may follow later
// events of its task. An event that the feed's audit found missing, which is a defect of this module, is
// published when it is found. If there are several, the relay publishes everything read since the last
// audit a second time. [Hook].EventsMissed reports them. An event that one relay has left out may follow the next event
// of its task if another relay publishes it, see Concurrency properties.
//
// # Losses of the stream
//
// The stream is derived data. Every cursor row holds a mark of the stream: when it was created, its last
// sequence and the message there, and the messages missing in it. The relay compares the stream with the
// mark at the beginning of a session, after a reconnect, every [Config].CheckEvery, and with each
// acknowledgement.
//
// Messages are lost if the stream was created anew, ends too early, begins too late, has holes, or drops
// duplicates of messages that it does not hold. The relay then publishes them again under a new generation in the
// message ids, which keeps the stream from dropping them as duplicates. New events come first, and go on meanwhile.
// Then the work messages of tasks that are available or running follow: those that the projector lists as lingering,
// and those among the events that it has not listed yet. So the time grows with what is unfinished, and with history
// only if no projector runs. At last all lost events follow, for subscribers, as far as a quarter of the stream holds
// them. The owed events of a task are published before each new one, so those of each task appear in their order. Kinds
// that are withheld, and those whose owed messages find no room, follow as described under Backpressure: the ones
// without workers after all other work messages. [Status].Owed has what is left.
//
// Messages that reached their maximum age are not a loss, nor are messages that the relay removed.
//
// # Concurrency properties
//
// Any number of relays may run; one works, and the others stand by. The lease that decides it is a row in
// taskledger.lease, so poolers in transaction mode work. The holder keeps it while a server is away. Another
// relay takes it when it has expired, when the holder's connection to the database has ended, or when the
// holder has failed for twice its term and the other relay is connected to NATS.
//
// The lease avoids double work only: a relay that stalls and loses it may publish the rest of its page, but cannot
// move the cursor. Its messages are repetitions, or first appearances that its successor repeats.
//
// Before it publishes, a relay renews a lease that has ended by its clock, and in the middle of a page it stops then.
// The stream may still get the messages that it has handed to its connection before. If that clock was stopped too,
// as in a paused virtual machine, or if the lease was taken before it ended, both relays may publish for a moment, and
// each event of their pages may be on the stream twice. Then a withheld event that one of them leaves out may follow
// the next event of its task. Workers go by the ledger, and a subscriber that skips events which are not newer than
// the last one of their task skips it.
//
// The relay must be the only writer of the stream. A foreign message means that another program publishes
// there, or that a copy of the database is in use. Then [Relay.Run] returns a [*ForeignWriterError], which names the
// cure. A crash of PostgreSQL may undo events that the relay has published, if their producers set synchronous_commit
// to off, and the promotion of an asynchronous standby, or a recovery to a point in time, may lose them. The relay
// counts and logs their messages.
//
// # Backpressure
//
// While the stream is full, slow or unavailable, events wait in the ledger, and transactions commit as
// usual. Above 80 % of the stream's limit, the relay removes what is needed least: first what every durable
// consumer has acknowledged, then older messages that wait for no worker. So a subscriber cannot stop
// workers; [Status].Missed names those that must read the ledger instead.
//
// Messages that wait for workers stay. A kind of which too many wait is withheld: its later waking events are
// not published yet. They follow, in their order and once each, when the workers of their shards have room, and at
// the latest before the next event of their task. So a kind cannot stop others, whether its workers are slow, absent
// or misspelt, and subscribers receive the events of each task in order. Its events that make a task available reach
// subscribers later than usual. When the next event of the task comes, no worker needs them any more: if the stream is
// nearly full then, they are not published, and [Status].Missed names the durable subscribers.
//
// # Crash points
//
// [FaultPage], [FaultSend], [FaultPublished], [FaultRefill], [FaultRefilled] and [FaultHandled] are the places where
// tests and the demo kill a relay or a subscriber.
package outbox
