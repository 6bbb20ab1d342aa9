// Package taskledger is a task queue, an outbox and an audit log in one append-only table of PostgreSQL.
//
// A transaction enqueues a task by inserting one event. A worker finishes it by inserting another event in the
// transaction of its own effect. A relay publishes the committed events on NATS JetStream.
//
// This package is the front door. [Open] connects a producer or a worker, with a pool of the right size. It links
// PostgreSQL's driver and NATS' client alone. Other packages:
//
//   - services: run the services of a ledger in a program, as the command taskledger serve does
//   - ledger: enqueue and read tasks; ledger/stdsql for database/sql, ledger/periodic for schedules
//   - workers: run handlers; workers/operator to release, cancel and pause, workers/workertest for tests
//   - outbox: the relay and subscribers in Go; outbox/watermill for Watermill, and any NATS client without it
//   - api and api/client: the HTTP API as an http.Handler, and its client for programs without the database; webhook
//     sends events to HTTP servers
//   - projector and health: tables of tasks, and the conditions that an operator acts on
//   - metrics and health/probe: for monitors and orchestrators
//
// The example of [Open] is a whole program that enqueues and works. README.md is the introduction and ARCHITECTURE.md
// the map.
package taskledger
