package ledger

// Constants for tests.
const (
	DefaultRetryMax = defaultRetryMax
	MaxRetryDelay   = maxRetryDelay
	MaxActorLen     = maxActorLen
)
