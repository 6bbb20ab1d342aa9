// Package watermill connects [Watermill] to the outbox: a [Publisher] whose messages become tasks, and a
// [Subscriber] to the ledger's events. Package workers/watermill has the other half: a subscriber to
// tasks, and Watermill's handlers and middleware inside an attempt.
//
// The publisher needs PostgreSQL only. The subscriber reads the stream that an [outbox.Relay] fills.
//
// docs/watermill.md is the guide: what is stored, what is promised, which middleware fits, and how to
// move in from watermill-sql.
//
// [Watermill]: https://watermill.io
// [outbox.Relay]: https://pkg.go.dev/github.com/taskledger/taskledger/outbox#Relay
package watermill
