package dispatch

// mutant names a rule that the tests leave out, to show its purpose. The zero value leaves out no rule.
type mutant int

const (
	_                 mutant = iota
	freesAtOnce              // a task that its worker no longer holds is ready at once
	freesByKey               // a report frees tasks that were offered after it was sent
	neverFrees               // a report frees nothing
	lateIsAccepted           // a worker accepts an offer again
	creditIsCounted          // credit is the number of tasks that have arrived
	epochsFall               // a worker follows a lower epoch
	neverProbes              // an offer that was lost is not repeated by number
	adoptsNothing            // the holdings of an earlier epoch are ignored
	isUnverified             // an adopted task that is freed is believed to be available
	earlierWindow            // a window that was open already ends a doubt
	skipsLate                // an event committed during a read is not read later
	readsOld                 // a task that was read is taken, even if an event has ended it meanwhile
	forgetsKnown             // an event known from one read does not count during the next
	readsBefore              // a new dispatcher reads the ledger before the workers have answered (in the test's shell)
	lateHints                // a hint is taken although events were applied after it was read
	takesNoTurns             // an offer of a partition's task is not counted
	savesTurns               // a partition that had no tasks for a while gets its turns later
	forgetsPartitions        // the partitions that are only in the ledger are not searched
	hasNoBarrier             // an offer of the predecessor is accepted by a silent worker (in the test's shell)
)
