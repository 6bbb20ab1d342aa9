package projector

import (
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/internal/rebuild"
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

type (
	// VersionError reports that the version of a projection's tables is newer than the program's, or that the DDL has
	// changed but not the version.
	VersionError = rebuild.VersionError
	// TablesError reports tables of a projection that do not exist, or that it cannot make or replace.
	TablesError = rebuild.TablesError
)
