// Package seal seals the events of the ledger in a Merkle tree, so that a change of a sealed event is detected, even
// if the owner of the database made it. A sealer runs at intervals and prints a checkpoint, which an auditor keeps
// outside of the database. Any later state of the ledger is verified against it.
//
//	result, err := seal.Run(ctx, pool, nil)         // seals all committed events
//	fmt.Print(result.Checkpoint)                    // to be kept outside
//	report, err := seal.Verify(ctx, pool, &seal.VerifyOptions{Checkpoints: kept})
//	proofs, err := seal.ProveTask(ctx, pool, key, 0, 100, result.Checkpoint)
//	err = proofs[0].Check(kept[0])                  // needs no database
//
// # The tree
//
// The tree follows RFC 6962, as golang.org/x/mod/sumdb/tlog computes it. Leaf n is the n-th event in the order of the
// feed (package internal/feed), from 0. Its hash is SHA-256(0x00 || record), and a node's hash is SHA-256(0x01 || left
// || right).
//
// # The record of an event
//
// The record is UTF-8 text of 16 lines. Each line ends with a newline (0x0A). A line is a name, a space and a
// value; a text is preceded by its length in bytes, in decimal, and a space; null is "-".
//
//	taskledger event v1
//	position 17
//	kind 11 coupon.send
//	biz_id 3 A-1
//	version 2
//	run -
//	attempt 1
//	type succeeded
//	recorded_at 2026-11-17T09:00:00.123456Z
//	login_id 3
//	shard 12
//	data_version 1
//	priority 0
//	order_key -
//	partition -
//	personal 215e340da2977571d4935c0b2f779c8c1d4fb52867dafc208f7f973099e4e8b9
//
// recorded_at is in UTC, always with six digits of a second. login_id is covered but the login's name is not, so that
// a pseudonym may replace it. The transaction ID is not covered: in a restored database it is meaningless.
//
// personal is the digest of data, meta and actor, the columns that may contain personal data, in lower-case
// hexadecimal. It is the SHA-256 of a line, a salt of 16 random bytes, and three lines. data and meta are covered as
// stored, byte for byte:
//
//	taskledger personal data v1
//	<16 bytes>data 14 {"percent":10}
//	meta -
//	actor 5 alice
//
// The sealer draws the salt, and the table seal stores it. Erasure replaces the salt by the digest: the leaf stays
// valid, and no text can be confirmed by guessing it. Without the salt the digest proves nothing about the text.
//
// ExampleEvent_Record computes a record and its leaf.
//
// # Checkpoints
//
// A checkpoint is three lines, the text of C2SP tlog-checkpoint: the origin, which is "taskledger/" and the
// installation of the ledger, the number of leaves in decimal, and the hash of the tree in base64. A file may contain
// many, separated by empty lines.
//
//	taskledger/6f1ed002-ab5e-4e4c-9a4b-5d3f6b8f3c11
//	1024
//	nND/nri/U0xuHUrYSy0HtMeal2vzD9V4k/BO79C+QeI=
//
// A signed checkpoint is a note of golang.org/x/mod/sumdb/note: after an empty line follow the Ed25519 signature of a
// [Signer], whose name is the origin, and cosignatures of witnesses (C2SP tlog-cosignature), which contain a time. A
// [Policy] states which signatures are required. A name may follow the origin after a slash: a log that begins again,
// for example after a restore, needs another name, because witnesses never accept a second tree under the first.
//
// # Tiles
//
// A [Directory] contains the newest signed checkpoint and the tree as tiles by C2SP tlog-tiles, 256 hashes each: 32
// bytes an event, without the events. Any proof of any checkpoint is computed from tiles, by this package ([Log]) and
// by others' programs, without a database. There are no bundles of entries: an event's record follows from the ledger
// or from a [Proof].
//
// # Which changes are detected
//
// Verify reads each sealed event and the whole tree. It reports events that were changed or removed, inserted events
// that no sealer will seal, changes of the table seal, and checkpoints of another tree. It counts the events that are
// not sealed yet. The column sealed_at is not covered.
//
// An owner can change events and build a new tree from them; that tree has other checkpoints. So without a checkpoint
// that was kept outside, Verify proves only that the events and the table agree. If an owner moves the sealer's cursor
// back, an inserted event is sealed as a late one, after the leaves of all earlier checkpoints. A change before the
// event was sealed is not detected.
//
// # Concurrency and crashes
//
// A sealer reads the feed by the cursor [feed.SealReader], and commits each page with its cursor row. So it may be
// killed at any point and run again, and several may run at once: each event is sealed once. After a rebase the feed
// returns some events again; their positions identify them. The commit waits for the disk. If a standby is promoted
// without the last commits, it has fewer leaves than the last checkpoint, and Verify reports that.
package seal
