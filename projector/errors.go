package projector

import (
	"errors"
	"fmt"
	"strings"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

// ErrUnknownProjection is the error of a name under which no projection is registered.
var ErrUnknownProjection = errors.New("no such projection")

// ErrNotParked is the error of a task without an event that a projection has parked or that stops it.
var ErrNotParked = errors.New("no event of the task is parked or stops the projection")

// ApplyError reports an event that a projection cannot apply.
type ApplyError struct {
	Projection string
	Event      ledger.Event
	Err        error // of Apply or of an upcast, or its panic
}

func (e *ApplyError) Error() string {
	return fmt.Sprintf("projection %s cannot apply position %d, %s: %v", e.Projection, e.Event.Position, e.Event, e.Err)
}

// Unwrap returns the error of Apply.
func (e *ApplyError) Unwrap() error { return e.Err }

// VersionError reports that the version of a projection's tables is newer than the program's, or that the DDL has
// changed but not the version.
type VersionError struct {
	Projection string
	Tables     int // the version of the tables
	Program    int // the version of the program
}

func (e *VersionError) Error() string {
	if e.Tables == e.Program {
		return fmt.Sprintf("projection %s: the DDL differs from the tables' DDL, and both have version %d: "+
			"set a higher Version", e.Projection, e.Tables)
	}
	return fmt.Sprintf("projection %s: the tables have version %d, the program has version %d: run the newer program, "+
		"or give the older code a Version above %d", e.Projection, e.Tables, e.Program, e.Tables)
}

// TablesError reports tables of a projection that do not exist, or that it cannot make or replace.
type TablesError struct {
	Projection string
	Tables     []string
	Reason     string
	Cure       string
}

func (e *TablesError) Error() string {
	return fmt.Sprintf("projection %s: %s: %s: %s", e.Projection, strings.Join(e.Tables, ", "), e.Reason, e.Cure)
}

// isOutage reports whether an error in the transaction of a page is about the database and not about an event.
func isOutage(err error) bool {
	switch pgerr.Class(err) {
	case pgerr.ClassInsufficientResources, pgerr.ClassSystemError:
		return true
	}
	return pgerr.IsRetryable(err)
}
