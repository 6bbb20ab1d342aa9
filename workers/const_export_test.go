package workers

// Constants for tests.
const (
	DefaultSlots        = defaultSlots
	DefaultSlotsOutside = defaultSlotsOutside
	MaxProgressBytes    = maxProgressBytes
	MaxResultBytes      = maxResultBytes
)
