// Package health decides when an operator should act.
//
// [Read] reads the numbers of the ledger's services (relay, stream, projector, timers, schedules, kinds, alarms),
// compares them with thresholds, and returns both in a [Report]. A [Condition] that holds consists of a stable name,
// a sentence, its beginning, and a cure. [Definitions] lists all conditions with their meanings.
//
// The commands taskledger status and serve --alarms, probes and metrics use this package, so that each condition is
// read, decided and worded once. A ledger without conditions is healthy.
package health
