// Package longtest chooses between the two forms of a test that takes long. By default the short form runs, in which
// each promise is tested once; CI runs the long form, with more tasks, more time or a larger search.
package longtest

import "os"

// Variable is the environment variable that selects the long forms if it is not empty.
const Variable = "TASKLEDGER_LONG_TESTS"

// IsSet reports whether tests run in their long form.
func IsSet() bool { return os.Getenv(Variable) != "" }

// Of returns long if tests run in their long form, and short otherwise.
func Of[T any](short, long T) T {
	if IsSet() {
		return long
	}
	return short
}
