package seal

// Constants for tests.
const (
	MaxFaults = maxFaults
)
