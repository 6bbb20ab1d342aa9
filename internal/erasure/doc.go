// Package erasure removes the texts of tasks for good: data, meta and actor of their events, and all copies of
// these. Keys, states, times and versions stay, and the seal stays valid: its leaves cover the texts by salted digests.
//
//	report, err := erasure.Erase(ctx, pool, erasure.Options{Keys: keys, Reason: "request 17", Open: openArchive})
//
// # Steps
//
//  1. Unfinished tasks are cancelled, and the projector reads these ends.
//  2. One transaction removes the texts from events, projection, tags and failures, with deliveries of webhooks and
//     alarms about the tasks, replaces the salts, lists the tasks, and records the act as a task of kind
//     taskledger.operation.
//  3. The archives are rewritten: see [archive.ApplyErasures].
//  4. The relay deletes the messages of the stream when it reads the record. Subscribers may handle it, too:
//     [ledger.Erased].
//
// Each step may be repeated: a call that was killed is run again with the same keys.
//
// # Concurrency
//
// Runs of the archive and erasures take turns, so that no file is written with texts that were read before. The
// transaction of step 2 waits for concurrent appends to the tasks. An event that is appended afterwards is not erased.
package erasure
