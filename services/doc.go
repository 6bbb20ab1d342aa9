// Package services runs the services of a ledger in a program of users, as the command taskledger serve does: relay,
// projector, dispatcher, scheduler, schedules, alarms and the HTTP server, with a NATS server of its own if the program
// names no other one.
//
// A program that enqueues, works and waits needs package taskledger alone, which links none of this.
package services
