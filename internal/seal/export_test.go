package seal

// The statements whose cost must not grow.
var (
	HashesSQL     = hashesSQL
	NewestSQL     = newestSQL
	UnsealedSQL   = unsealedSQL
	TaskSQL       = taskSQL
	EventsSQL     = eventsSQL
	InsertedSQL   = insertedSQL
	UnplacedSQL   = unplacedSQL
	RangeSQL      = rangeSQL
	SaltsSQL      = saltsSQL
	SaltsLateSQL  = saltsLateSQL
	LeavesFromSQL = leavesFromSQL
)
