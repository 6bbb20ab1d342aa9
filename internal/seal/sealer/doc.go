// Package sealer seals a ledger as a service: it seals new events twice a second, signs checkpoints, collects the
// cosignatures of witnesses and publishes them. The command taskledger serve runs it with --seal.
//
//	s, err := sealer.New(sealer.Config{DB: pool, File: file})
//	err = s.Run(ctx)
//
// # One sealer
//
// Any number of processes may run the service. The holder of a lease works, and the others stand by; another process
// takes over within 5 s after a kill, at once after a shutdown. Two sealers at a time are harmless: each event is
// sealed once, see package seal.
//
// # What is published
//
// A checkpoint is published only if the ledger contains the tree of the newest checkpoint in the directory and in the
// file. A database that was restored from an older backup, and a copy of the database, publish nothing: Run reports a
// [RefusedError] every time, and goes on sealing.
//
// Tiles are in the directory before a checkpoint that needs them is signed. Deliveries are no tasks, which webhooks
// otherwise are: a task's events would be sealed, and need the next checkpoint. A checkpoint that a receiver misses is
// covered by the next one.
//
// # Witnesses
//
// A witness cosigns a checkpoint if it contains the tree that the witness has seen before (C2SP tlog-witness, add
// checkpoint). All witnesses are asked at once. If fewer than the quorum answer, the checkpoint is not published, and
// the next one is tried. While nothing is sealed, the newest checkpoint is cosigned again each minute, so that an
// auditor does not take an idle ledger for a sealer that is cut off.
package sealer
