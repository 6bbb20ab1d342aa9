package rebuild

import (
	"fmt"
	"strings"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/printable"
)

// VersionError reports that the version of tables is newer than the program's, or that the DDL has changed but not the
// version.
type VersionError struct {
	Of      string // such as "subscriber coupons"
	Tables  int    // the version of the tables
	Program int    // the version of the program
}

func (e *VersionError) Error() string {
	if e.Tables == e.Program {
		return fmt.Sprintf("%s: the DDL differs from the tables' DDL, and both have version %d: set a higher Version",
			e.Of, e.Tables)
	}
	return fmt.Sprintf("%s: the tables have version %d, the program has version %d: run the newer program, "+
		"or give the older code a Version above %d", e.Of, e.Tables, e.Program, e.Tables)
}

// TablesError reports derived tables that do not exist, or that cannot be made or replaced.
type TablesError struct {
	Of     string // such as "subscriber coupons"
	Tables []string
	Reason string
	Cure   string
}

func (e *TablesError) Error() string {
	return fmt.Sprintf("%s: %s: %s: %s", e.Of, strings.Join(e.Tables, ", "), e.Reason, e.Cure)
}

// IsOutage reports whether an error in the transaction of a page is about the database and not about an event.
func IsOutage(err error) bool {
	switch pgerr.Class(err) {
	case pgerr.ClassInsufficientResources, pgerr.ClassSystemError:
		return true
	}
	return pgerr.IsRetryable(err)
}

// maxFailure is the length of the text of an error that is stored, in bytes.
const maxFailure = 4 << 10

// DescribeFailure returns the text of an error as it is stored.
func DescribeFailure(err error) string { return printable.Storable(err.Error(), maxFailure) }
