// Package taskledger is a task queue, an outbox and an audit log in one append-only table of PostgreSQL.
//
// A transaction enqueues a task by inserting one event. A worker finishes it by inserting another event in the
// transaction of its own effect. A relay publishes the committed events on NATS JetStream.
//
// This package has no code yet. Programs import these:
//
//   - ledger: enqueue and read tasks; ledger/stdsql for database/sql, ledger/periodic for schedules
//   - workers: run handlers; workers/operator to release, cancel and pause, workers/workertest for tests
//   - outbox: the relay; outbox/watermill for subscribers, and any NATS client without it
//   - projector and health: tables of tasks, and the conditions that an operator acts on
//   - cmd/taskledger: the command, whose serve runs relay, projector, scheduler, reconciler and schedules
//
// Package workers begins with a complete example; each exported verb has one. README.md is the introduction and
// ARCHITECTURE.md the map.
package taskledger
