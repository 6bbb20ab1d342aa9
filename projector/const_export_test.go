package projector

// Constants for tests.
const (
	MaxTag  = maxTag
	MaxTags = maxTags
)
