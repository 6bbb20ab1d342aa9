// Package taskledger is a task queue, an outbox and an audit log in one append-only table of PostgreSQL.
//
// A transaction enqueues a task by inserting one event. A worker finishes it by inserting another event in the
// transaction of its own effect. A relay publishes the committed events on NATS JetStream.
//
// This package is the front door of a program that enqueues, works and waits:
//
//	var coupons = ledger.MustKind[Coupon]("coupon.send")
//
//	client, err := taskledger.Open(ctx, taskledger.Options{}) // the address is in DATABASE_URL
//	_, err = coupons.Enqueue(ctx, tx, "A-1", Coupon{Cents: 500}, nil) // in a transaction of the program
//	worker, err := client.Worker(workers.Handle(coupons, sendCoupon, nil))
//	err = worker.Run(ctx)
//	task, err := client.Wait(ctx, coupons.Key("A-1"))
//
// It links the PostgreSQL driver, the NATS client and their dependencies. Package services is the other door: it
// runs a ledger's services inside a program, as the command taskledger serve does. Programs also import:
//
//   - ledger: kinds, tasks and events; ledger/stdsql for database/sql, ledger/periodic for schedules
//   - workers: handlers and guarantees; workers/workertest for tests
//   - outbox: subscribers in Go; any NATS client can subscribe as well
//   - metrics: for [Options]; [NewProbe] for orchestrators
//   - tracing, for [Options], and watermill: modules of their own
//   - services: NewHandler is the HTTP API and the console as an http.Handler; api/client is the client of programs
//     without the database; webhook verifies the requests of webhooks and pushes
//   - projector: tables of tasks; services.ReadStatus: the conditions that an operator acts on
//
// README.md is the introduction and ARCHITECTURE.md the map.
package taskledger
