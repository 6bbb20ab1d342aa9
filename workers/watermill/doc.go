// Package watermill connects [Watermill] to workers: a [Subscriber] to tasks, handlers and middleware of
// Watermill inside an attempt. Package outbox/watermill has the other half: a publisher whose messages
// become tasks, and a subscriber to events.
//
//   - [Subscriber] delivers tasks to Watermill's router, at least once: an ack succeeds the attempt.
//   - [Handle] registers a handler of Watermill. The handler's rows, the messages that it returns and the outcome of
//     the task are one transaction, so they happen exactly once.
//   - [Config.KindConfig] puts Watermill's middleware around a handler of package workers.
//
// In middleware, and in handlers of Watermill, [JobFromContext] returns the attempt of a message, and
// [TxFromContext] its transaction.
//
// docs/watermill.md is the guide: the guarantees, and which middleware fits.
//
// [Watermill]: https://watermill.io
package watermill
