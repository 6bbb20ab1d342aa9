package outbox

// Constants for tests.
const (
	DefaultLeaseTTL = defaultLeaseTTL
)
