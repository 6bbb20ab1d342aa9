package rebuild

import (
	"context"
	_ "embed"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/states.sql
	statesSQL string
	//go:embed sql/register.sql
	registerSQL string
	//go:embed sql/set_tables.sql
	setTablesSQL string
	//go:embed sql/failure_record.sql
	failureRecordSQL string
	//go:embed sql/failure_clear.sql
	failureClearSQL string
	//go:embed sql/invalidate.sql
	invalidateSQL string
	//go:embed sql/invalidate_all.sql
	invalidateAllSQL string
)

// State is the state of the tables of a reader, as stored in the database.
type State struct {
	Name    string    `json:"name"`
	Version int       `json:"version"` // of its tables; 0: a rebase has made them invalid, and they are rebuilt
	Tables  []string  `json:"tables"`  // in the schema of that name; of the built-in one in schema taskledger
	Parks   bool      `json:"parks"`   // an event that cannot be applied is parked; else it stops the projection
	Since   time.Time `json:"since"`   // when the tables came into use
	Failing *Failing  `json:"failing"` // the event that stops it; null: none
	Work    *Work     `json:"work"`    // the rebuild or verification that is under way, or was the last; null: none
	Wanted  string    `json:"wanted"`  // an operator's request: rebuild or verify; "": none

	Shape string `json:"-"` // digest of the DDL
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

// ReadAll returns the registered states by name. It never commits. Errors: [ledger.ErrNotMigrated].
func ReadAll(ctx context.Context, db ledger.DB) ([]State, error) { return list(ctx, db, "") }

// Read returns the state that is registered under a name. It never commits. Errors: [ledger.ErrNotMigrated].
func Read(ctx context.Context, db ledger.DB, name string) (s State, found bool, err error) {
	all, err := list(ctx, db, name)
	if err != nil || len(all) == 0 {
		return State{}, false, err
	}
	return all[0], true, nil
}

func list(ctx context.Context, db ledger.DB, name string) ([]State, error) {
	rows, err := db.Query(ctx, statesSQL, name)
	if err != nil {
		return nil, pgerr.Explain("read the registry of tables", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r State, err error) {
		var f Failing
		var w Work
		var tables, result string
		err = row.Scan(&r.Name, &r.Version, &r.Shape, &tables, &r.Parks, pgquery.Micros(&r.Since),
			(*int64)(&f.Position), (*string)(&f.Key.Kind), (*string)(&f.Key.BizID), (*int32)(&f.Version), &f.Failures,
			pgquery.Micros(&f.Since), pgquery.Micros(&f.LastAt), &f.Error, &r.Wanted,
			&w.Name, pgquery.Micros(&w.At), &w.Done, &w.Total, &result)
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
	return all, pgerr.Explain("read the registry of tables", err)
}

// Register adds tables to the registry, and reports whether they are new.
func Register(ctx context.Context, tx pgx.Tx, name string, version int, shape string, parks bool) (bool, error) {
	var have int
	isNew, err := pgquery.Row(ctx, tx, registerSQL, []any{name, int64(version), shape, number(parks)}, &have)
	return isNew, pgerr.Explain("register "+name, err)
}

// SetTables sets the names of registered tables.
func SetTables(ctx context.Context, tx pgx.Tx, name string, tables []string) error {
	_, err := tx.Exec(ctx, setTablesSQL, name, pgarray.Of(tables...))
	return pgerr.Explain("register "+name, err)
}

// Invalidate makes registered tables invalid, so that they are rebuilt.
func Invalidate(ctx context.Context, db ledger.DB, name string) error {
	_, err := db.Exec(ctx, invalidateSQL, name)
	return pgerr.Explain("invalidate the tables of "+name, err)
}

// InvalidateAll makes the tables of all readers invalid, except those of the built-in projection. They are rebuilt.
func InvalidateAll(ctx context.Context, db ledger.DB) error {
	_, err := db.Exec(ctx, invalidateAllSQL)
	return pgerr.Explain("invalidate tables", err)
}

// RecordFailure records that an event stops a reader.
func RecordFailure(ctx context.Context, db ledger.DB, name string, e ledger.Event, failure error) error {
	_, err := db.Exec(ctx, failureRecordSQL, name, int64(e.Position), string(e.Kind), string(e.BizID),
		int64(e.Version), DescribeFailure(failure))
	return pgerr.Explain("record a failure of "+name, err)
}

// ClearFailure records that no event stops a reader.
func ClearFailure(ctx context.Context, db ledger.DB, name string) error {
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
