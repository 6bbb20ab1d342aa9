package projector

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/projections.sql
	projectionsSQL string
	//go:embed sql/register.sql
	registerSQL string
	//go:embed sql/set_tables.sql
	setTablesSQL string
	//go:embed sql/failure_record.sql
	failureRecordSQL string
	//go:embed sql/failure_clear.sql
	failureClearSQL string
)

// Registered is a projection as stored in the database.
type Registered struct {
	Name    string    `json:"name"`
	Version int       `json:"version"` // of its tables; 0: a rebase has made them invalid, and they are rebuilt
	Tables  []string  `json:"tables"`  // in the schema of that name; of the built-in one in schema taskledger
	Parks   bool      `json:"parks"`   // an event that cannot be applied is parked; else it stops the projection
	Since   time.Time `json:"since"`   // when the tables came into use
	Failing *Failing  `json:"failing"` // the event that stops it; null: none
	Parked  int       `json:"parked"`  // events; at most maxListed
	Skipped int       `json:"skipped"` // events; at most maxListed
	Work    *Work     `json:"work"`    // the rebuild or verification that is under way, or was the last; null: none
	Wanted  string    `json:"wanted"`  // an operator's request: rebuild or verify; "": none

	shape string
}

// Failing is an event that stops a projection.
type Failing struct {
	Position ledger.Position `json:"position"`
	Key      ledger.Key      `json:"key"`
	Version  ledger.Version  `json:"version"`
	Failures int             `json:"failures"` // in a row
	Since    time.Time       `json:"since"`    // of the first failure
	LastAt   time.Time       `json:"last_at"`
	Error    string          `json:"error"`
}

// Work is a rebuild or a verification.
type Work struct {
	Name   string          `json:"name"` // rebuild or verify
	At     time.Time       `json:"at"`   // of its last progress
	Done   int64           `json:"done"` // events
	Total  int64           `json:"total"`
	Result json.RawMessage `json:"result"` // null: it has not ended
}

// maxListed is the highest number of events that [Registered] counts.
const maxListed = 10_000

// ReadProjections returns the registered projections by name. It never commits. Errors: [ledger.ErrNotMigrated].
func ReadProjections(ctx context.Context, db ledger.DB) ([]Registered, error) {
	return listRegistered(ctx, db, "")
}

// ReadProjection returns the projection that is registered under a name. It never commits.
//
// Errors: [ErrUnknownProjection], [ledger.ErrNotMigrated].
func ReadProjection(ctx context.Context, db ledger.DB, name string) (Registered, error) {
	r, found, err := readRegistered(ctx, db, name)
	if err == nil && !found {
		err = fmt.Errorf("projection %q: %w", name, ErrUnknownProjection)
	}
	return r, err
}

func readRegistered(ctx context.Context, db ledger.DB, name string) (r Registered, found bool, err error) {
	all, err := listRegistered(ctx, db, name)
	if err != nil || len(all) == 0 {
		return Registered{}, false, err
	}
	return all[0], true, nil
}

func listRegistered(ctx context.Context, db ledger.DB, name string) ([]Registered, error) {
	rows, err := db.Query(ctx, projectionsSQL, name, int64(maxListed))
	if err != nil {
		return nil, pgerr.Explain("read projections", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Registered, err error) {
		var f Failing
		var w Work
		var tables, result string
		err = row.Scan(&r.Name, &r.Version, &r.shape, &tables, &r.Parks, pgquery.Micros(&r.Since),
			(*int64)(&f.Position), (*string)(&f.Key.Kind), (*string)(&f.Key.BizID), (*int32)(&f.Version), &f.Failures,
			pgquery.Micros(&f.Since), pgquery.Micros(&f.LastAt), &f.Error, &r.Wanted,
			&w.Name, pgquery.Micros(&w.At), &w.Done, &w.Total, &result, &r.Parked, &r.Skipped)
		if err != nil {
			return r, err
		}
		if f.Failures > 0 {
			r.Failing = &f
		}
		if w.Name != "" {
			r.Work = &w
			if result != "" {
				w.Result = json.RawMessage(result)
			}
		}
		return r, json.Unmarshal([]byte(tables), &r.Tables)
	})
	return all, pgerr.Explain("read projections", err)
}

// register adds a projection to the registry, and reports whether it is new.
func register(ctx context.Context, tx pgx.Tx, p Projection) (bool, error) {
	var version int
	isNew, err := pgquery.Row(ctx, tx, registerSQL,
		[]any{p.Name, int64(p.Version), p.shape(), number(p.OnFailure == Park)}, &version)
	return isNew, pgerr.Explain("register "+p.Name, err)
}

func setTables(ctx context.Context, tx pgx.Tx, name string, tables []string) error {
	_, err := tx.Exec(ctx, setTablesSQL, name, pgarray.Of(tables...))
	return pgerr.Explain("register "+name, err)
}

func recordFailure(ctx context.Context, db ledger.DB, e *ApplyError) error {
	_, err := db.Exec(ctx, failureRecordSQL, e.Projection, int64(e.Event.Position), string(e.Event.Kind),
		string(e.Event.BizID), int64(e.Event.Version), describeFailure(e.Err))
	return pgerr.Explain("record a failure of "+e.Projection, err)
}

func clearFailure(ctx context.Context, db ledger.DB, name string) error {
	_, err := db.Exec(ctx, failureClearSQL, name)
	return pgerr.Explain("clear the failure of "+name, err)
}

// number returns 1 for true and 0 for false.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
