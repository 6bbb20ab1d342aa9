package fault

// The crash points that tests of several packages arm. Others are constants of their packages.
const (
	RelayPage      = "relay.page"      // before a page is published
	RelayPublished = "relay.published" // between a page's acknowledgements and its cursor row
	RelayErased    = "relay.erased"    // a message of an erased task is deleted, others are not

	ReplaySend      = "replay.send"      // before a message is sent
	ReplayPublished = "replay.published" // after its acknowledgement

	SubscriberHandled = "subscriber.handled" // between the handling of a page and its commit
	SubscriberTake    = "subscriber.take"    // before a process reads where the stream of a served subscriber ends
	SubscriberWave    = "subscriber.wave"    // before it publishes

	BuildMade  = "tables.build.made"  // the new tables of a rebuild are made and empty
	BuildBatch = "tables.build.batch" // a part of them is filled
	BuildIndex = "tables.build.index" // the indexes are made and not committed
	SwapHeld   = "tables.swap.held"   // the cursor is held
	SwapMoved  = "tables.swap.moved"  // the new tables are in place and not committed
	SwapDone   = "tables.swap.done"   // they are committed

	SealBatch = "seal.batch" // before a page is committed
	SealEnd   = "seal.end"   // after a page is committed

	SealTiles     = "seal.tiles"     // tiles are written, the checkpoint is not signed
	SealPublished = "seal.published" // the checkpoint is at one receiver, and not yet at the next

	ArchivePlan      = "archive.plan"       // a volume's plan is stored
	ArchiveSegment   = "archive.segment"    // a segment is stored, its entries of the index are not
	ArchiveRun       = "archive.run"        // both are stored, and are not part of the volume yet
	ArchiveSummary   = "archive.summary"    // a segment is part of the volume
	ArchiveTiles     = "archive.tiles"      // the tiles are stored, the index is not
	ArchiveIndex     = "archive.index"      // the index is stored, the manifest is not
	ArchiveManifest  = "archive.manifest"   // the volume is complete, with files that it does not need
	ArchiveStored    = "archive.stored"     // tasks are in files, and still in the tables
	ArchiveRemoved   = "archive.removed"    // a batch is removed
	ArchiveForgotten = "archive.forgotten"  // the keys of a batch are forgotten
	ArchiveMerged    = "archive.merged"     // the minutes of an hour are merged
	ArchiveTilesRead = "archive.tiles_read" // tiles are verified, the rows of the seal are not removed
	ArchiveCut       = "archive.cut"        // rows of the seal are removed

	EraseCancelled = "erase.cancelled" // unfinished tasks are cancelled, nothing is erased
	EraseCommitted = "erase.committed" // the tables are erased, files and stream are not
	EraseListed    = "erase.listed"    // an archive lists the act, its volumes are not rewritten
	EraseSegment   = "erase.segment"   // a segment without the texts is stored
	EraseRewritten = "erase.rewritten" // all files of the volume are stored, the manifest is not
	EraseReplaced  = "erase.replaced"  // the volume has new files, and the old ones are there

	ImportCopied = "import.copied" // the events are inserted and not committed
	ImportEnd    = "import.end"    // before the commit

	RebaseEnd = "rebase.end" // before the commit
)
