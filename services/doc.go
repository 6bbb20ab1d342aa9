// Package services runs the services of a ledger inside a program, as the command taskledger serve does: relay,
// projector, dispatcher, scheduler, schedules, alarms and the HTTP server. It also runs a NATS server unless the
// program names another.
//
// A program that only enqueues, works and waits needs package taskledger, which links none of this.
package services
