// Package watermill connects [Watermill] to a ledger. It is a separate module, so that other programs need no module of
// Watermill.
//
//   - [Publisher]: messages become tasks, in the caller's transaction. It needs PostgreSQL alone.
//   - [TaskSubscriber] delivers tasks to Watermill's router, at least once: an ack succeeds the attempt.
//   - [EventSubscriber] delivers the events of tasks, in order, from the stream that [outbox.Relay] fills.
//   - [Handle] registers a handler of Watermill. The handler's rows, the messages that it returns and the outcome of
//     the task are one transaction, so they happen exactly once.
//   - [Config.KindConfig] puts Watermill's middleware around a handler of package workers.
//
// In middleware, and in handlers of Watermill, [JobFromContext] returns the attempt of a message, and
// [TxFromContext] its transaction.
//
// docs/watermill.md is the guide: storage and guarantees, suitable middleware, and how to migrate from
// watermill-sql.
//
// [Watermill]: https://watermill.io
// [outbox.Relay]: https://pkg.go.dev/github.com/taskledger/taskledger/outbox#Relay
package watermill
