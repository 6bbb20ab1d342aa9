// Package archive keeps the history of a ledger in files that are verified without a database: in a [Directory] or in
// an object store.
//
//	w, err := archive.Create(ctx, store, plan)
//	err = w.Add(ctx, record)                        // in the order of positions
//	manifest, err := w.Close(ctx, nil)              // the volume is complete
//	report, err := archive.Verify(ctx, store, nil)  // needs no database
//	events, err := archive.History(ctx, store, key)
//
// # The files
//
// An archive contains volumes, and may contain the tree of the seal, as package internal/seal publishes it:
//
//	volumes/<name>/plan.json                     the plan of the volume, written first
//	volumes/<name>/segment-000001-<hash>.jsonl.zst
//	volumes/<name>/segment-000001.json           its summary: with it, the segment is part of the volume
//	volumes/<name>/index-000001-<hash>           where the events of each task are
//	volumes/<name>/manifest.json                 written last: the volume is complete
//	checkpoint                                   the newest checkpoint of the published tree
//	tile/…                                       the tree, by C2SP tlog-tiles
//
// No file is changed once it is written. <hash> is the first 16 hexadecimal digits of the file's SHA-256.
//
// # Segments
//
// A segment is a sequence of zstd frames (RFC 8878), so that zstd -d prints it. Each frame is complete by itself and
// contains whole lines. A line is the JSON of a [Record] as json.Marshal writes it, without HTML escapes: the columns
// of the event that the seal covers, data and meta as text, byte for byte as stored, with the id of its transaction,
// the number of its leaf and its salt. From a line follow the record and the hash of the leaf that package
// internal/seal specifies. Within a segment positions increase. The segments of a [Range] follow each other; segments
// of [Tasks] may overlap.
//
// # The index
//
// The index is a sorted list of entries of 28 bytes, divided into files: the [KeyHash] of a task, then three unsigned
// integers of 32 bits, most significant byte first. They are the number of a segment, from 1, and the offset and the
// length of a frame in it that contains events of the task. So the events of a task are read without a scan.
//
// # Crashes and concurrency
//
// Each file is durable before a later one refers to it. A writer that was killed is continued by [Create] with the same
// plan: it returns the place after the last segment. Of two writers of one volume, one gets [ErrExists]. Readers see
// volumes with a manifest only.
package archive
