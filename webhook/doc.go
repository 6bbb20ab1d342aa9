// Package webhook sends the events of a ledger to HTTP servers, signed by Standard Webhooks
// (https://www.standardwebhooks.com).
//
//	s, err := webhook.New(webhook.Config{DB: pool, NATS: nc, File: file})
//	err = s.Run(ctx) // until ctx is done
//
// A receiver is a subscriber of the feed (package outbox), named webhook-NAME. For each event that the receiver wants
// it enqueues a task of kind taskledger.webhook.NAME, in the transaction that keeps its place: each event has one
// delivery, also after a crash. Workers (package workers) make the deliveries: retries, dead letters, slots, pauses and
// history are those of tasks. A subscriber that is moved back delivers the events again, with the same webhook-id.
//
// A delivery is at least one request. Deliveries of the events of one task may overtake each other, unless
// [Receiver].Order is [OrderTask]; the body has the version.
//
// Receivers are independent: one that stops delays no other one. One that answers 410 Gone is paused until an operator
// resumes its kind.
//
// A connection is made to public addresses only, unless the configuration allows others. The address is checked for
// each connection, after its name was resolved, and redirects are not followed.
package webhook
