package outbox

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/eventrows"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/state_park.sql
	stateParkSQL string
	//go:embed sql/state_parked_among.sql
	stateParkedAmongSQL string
	//go:embed sql/state_has_retries.sql
	stateHasRetriesSQL string
	//go:embed sql/state_retries.sql
	stateRetriesSQL string
	//go:embed sql/state_park_again.sql
	stateParkAgainSQL string
	//go:embed sql/state_unpark.sql
	stateUnparkSQL string
	//go:embed sql/state_retire_parked.sql
	stateRetireParkedSQL string
	//go:embed sql/state_swap_parked.sql
	stateSwapParkedSQL string
)

// eventName names an event.
type eventName struct {
	ledger.Key

	version ledger.Version
}

// parkedSet contains the events that a page must not apply.
type parkedSet struct {
	keys      map[ledger.Key]bool // of tasks with a parked event
	discarded map[eventName]bool  // events
}

func (s parkedSet) isEmpty() bool { return len(s.keys) == 0 && len(s.discarded) == 0 }

// readParkedAmong returns the tasks among events that have an event parked under name, and the events that are
// discarded under name or discardedAs.
func readParkedAmong(
	ctx context.Context, tx pgx.Tx, name, discardedAs string, events []ledger.Event,
) (parkedSet, error) {
	var kinds, ids pgarray.Builder
	for _, e := range events {
		kinds.Add(string(e.Kind))
		ids.Add(string(e.BizID))
	}
	rows, err := tx.Query(ctx, stateParkedAmongSQL, name, discardedAs, kinds.String(), ids.String())
	if err != nil {
		return parkedSet{}, pgerr.Explain("read parked events", err)
	}
	var p eventName
	var isDiscarded bool
	set := parkedSet{keys: map[ledger.Key]bool{}, discarded: map[eventName]bool{}}
	_, err = pgx.ForEachRow(rows, []any{(*string)(&p.Kind), (*string)(&p.BizID), (*int32)(&p.version), &isDiscarded},
		func() error {
			if isDiscarded {
				set.discarded[p] = true
			} else {
				set.keys[p.Key] = true
			}
			return nil
		})
	return set, pgerr.Explain("read parked events", err)
}

// addParked parks events. If reason is not "", the first of them has failed.
func addParked(ctx context.Context, tx pgx.Tx, name string, events []ledger.Event, reason string) error {
	if len(events) == 0 {
		return nil
	}
	var kinds, ids, versions, positions pgarray.Builder
	for _, e := range events {
		kinds.Add(string(e.Kind))
		ids.Add(string(e.BizID))
		versions.AddInt(int64(e.Version))
		positions.AddInt(int64(e.Position))
	}
	_, err := tx.Exec(ctx, stateParkSQL, name, kinds.String(), ids.String(), versions.String(), positions.String(),
		reason)
	return pgerr.Explain("park events", err)
}

// hasRetries reports whether an operator wants parked events to be retried.
func hasRetries(ctx context.Context, db ledger.DB, name string) (has bool, err error) {
	_, err = pgquery.Row(ctx, db, stateHasRetriesSQL, []any{name}, &has)
	return has, pgerr.Explain("read parked events", err)
}

// readRetries returns the parked events of one task that an operator wants to be retried.
func readRetries(ctx context.Context, db ledger.DB, name string) ([]ledger.Event, error) {
	rows, err := db.Query(ctx, stateRetriesSQL, name)
	if err != nil {
		return nil, pgerr.Explain("read parked events", err)
	}
	var events []ledger.Event
	for e, err := range eventrows.Scan(rows) {
		if err != nil {
			return nil, pgerr.Explain("read parked events", err)
		}
		events = append(events, e)
	}
	return events, nil
}

// removeParked removes the parked events of a task, which have been applied, or with nil all events of a name.
func removeParked(ctx context.Context, tx pgx.Tx, name string, k *ledger.Key) error {
	var kind, id *string
	if k != nil {
		kind, id = (*string)(&k.Kind), (*string)(&k.BizID)
	}
	_, err := pgquery.Texts(ctx, tx, stateUnparkSQL, name, kind, id)
	return pgerr.Explain("remove parked events", err)
}

// replaceParked replaces a reader's parked events by its build's. Discarded events stay.
func replaceParked(ctx context.Context, tx pgx.Tx, name, build string) error {
	retired := "retired/" + name
	if _, err := tx.Exec(ctx, stateRetireParkedSQL, name, retired); err != nil {
		return err
	}
	if err := removeParked(ctx, tx, retired, nil); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, stateSwapParkedSQL, build, name)
	return err
}

// parkAgain records that a parked event has failed again.
func parkAgain(ctx context.Context, tx pgx.Tx, name string, e ledger.Event, reason string) error {
	_, err := tx.Exec(ctx, stateParkAgainSQL, name, string(e.Kind), string(e.BizID), int64(e.Version), reason)
	return pgerr.Explain("park events", err)
}
