package projector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// Projection derives tables of yours from the events of the ledger. A [Runner] gives it every event once, a task's
// events in their order, and commits its tables together with its cursor.
//
// There is one exception. An event that the feed's audit found to be missing comes late, and earlier events may be
// repeated with it.
type Projection struct {
	// Name is the name of the projection and of the schema with its tables: a letter and up to 39 letters, digits
	// and underscores, in lower case. Required.
	Name string
	// Version is the version of DDL and Apply, from 1. If it is higher than the tables' version, the tables are rebuilt
	// next to the old ones and then replace them. Required.
	Version int
	// DDL makes the tables, with their indexes and rights, without naming a schema. It makes nothing else. Required.
	DDL string
	// Apply writes the changes of the events in tx, which is READ COMMITTED. It names the tables of DDL without a
	// schema and all others with theirs. It must not commit, roll back, or have effects outside of tx.
	//
	// An error, a panic or a crash undoes the page, and its events are applied again, in other pages. Apply keeps
	// nothing in memory between two calls, so its memory is bounded by the page. It must depend on the events alone, so
	// that a rebuild makes the same tables: no clock, no random number, no sequence. Required.
	Apply func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error
	// OnFailure decides about an event for which Apply fails. Default: [Stop].
	OnFailure OnFailure
	// Upcasts bring the data of old events to today's shape before Apply. Default: none.
	Upcasts ledger.Upcasts
}

// OnFailure decides about an event that a projection cannot apply. After an outage of the database, the event is
// applied again.
type OnFailure int

const (
	// Stop stops the projection before the event, which is retried every few seconds. Other projections continue.
	Stop OnFailure = iota
	// Park parks the event and all later ones of its task, until an operator retries or skips them. Other tasks
	// continue.
	Park
)

// TasksName is the name of the built-in projection: the tables task, task_count, kind_stats, illegal_event
// and task_tag.
const TasksName = "tasks"

var (
	validName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	taken     = []string{TasksName, "taskledger", "taskledger_internal", "public", "information_schema"}
)

// Validate reports every fault of p at once.
func (p Projection) Validate() error {
	var faults []error
	if !validName.MatchString(p.Name) || slices.Contains(taken, p.Name) || p.Name[:min(3, len(p.Name))] == "pg_" {
		faults = append(faults, fmt.Errorf("Name must be a letter and up to 39 letters, digits and underscores, "+
			"in lower case, and no name of PostgreSQL or taskledger, got %q", p.Name))
	}
	if p.Version < 1 || p.Version > 1<<30 {
		faults = append(faults, fmt.Errorf("Version must be between 1 and %d, got %d", 1<<30, p.Version))
	}
	if p.DDL == "" {
		faults = append(faults, errors.New("DDL is required"))
	}
	if p.Apply == nil {
		faults = append(faults, errors.New("Apply is required"))
	}
	if p.OnFailure != Stop && p.OnFailure != Park {
		faults = append(faults, fmt.Errorf("OnFailure must be Stop or Park, got %d", p.OnFailure))
	}
	if err := p.Upcasts.Validate(); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("projection %q: %w", p.Name, errors.Join(faults...))
	}
	return nil
}

// shape returns a digest of the DDL.
func (p Projection) shape() string {
	sum := sha256.Sum256([]byte(p.DDL))
	return hex.EncodeToString(sum[:16])
}

// reader returns the name under which the cursor of a projection is kept.
func reader(name string) string {
	if name == TasksName {
		return feed.ProjectorReader
	}
	return "projection/" + name
}

// buildOf returns the name that a projection that is being built uses for its cursor and its parked events.
func buildOf(name string) string { return name + "+build" }
