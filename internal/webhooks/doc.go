// Package webhooks sends the events of a ledger to HTTP servers, signed by Standard Webhooks
// (https://www.standardwebhooks.com).
//
//	s, err := webhooks.New(webhooks.Config{DB: pool, NATS: nc, File: file})
//	err = s.Run(ctx) // until ctx is done
//
// A receiver is a subscriber of the feed (package outbox), named webhook-NAME. For each event that the receiver wants,
// it enqueues a task of kind taskledger.webhook.NAME, in the transaction that moves its cursor: each event has one
// delivery, even after a crash. Workers (package workers) make the deliveries, so retries, dead letters, slots, pauses
// and history work as for any task. A subscriber that is moved back delivers the events again, with the same
// webhook-id.
//
// A delivery is at least one request. Deliveries of the events of one task may overtake each other, unless
// [Receiver].Order is [OrderTask]; the body contains the version.
//
// Receivers are independent: a receiver that stops does not delay the others. A receiver that answers 410 Gone is
// paused until an operator resumes its kind.
//
// An [Endpoint] sends one message without subscriber and task; alarms use it. A receiver written in Go verifies
// requests with package webhook.
//
// A connection is made to public addresses only, unless the configuration allows others. The address is checked for
// each connection, after its name was resolved, and redirects are not followed.
package webhooks
