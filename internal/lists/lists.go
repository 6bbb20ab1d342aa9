// Package lists checks the arguments of functions that return a part of a list.
package lists

import (
	"math"
	"strconv"

	"github.com/taskledger/taskledger/ledger"
)

// All is a limit that no list reaches.
const All = math.MaxInt32

// CheckLimit returns an [*ledger.InvalidError] if limit is less than 1. PostgreSQL refuses a negative limit with an
// error of its own, and an empty result would look like the end of the list.
func CheckLimit(limit int) error {
	if limit < 1 {
		return &ledger.InvalidError{Field: "limit", Value: strconv.Itoa(limit), Rule: "must be at least 1"}
	}
	return nil
}
