package api

// Constants for tests.
const (
	MaxList = maxList
	MaxWait = maxWait
)
