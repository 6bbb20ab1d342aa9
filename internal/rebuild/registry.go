package rebuild

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
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
	Name    string    `json:"name"`    // of the subscriber; of the built-in projection projector
	Version int       `json:"version"` // of its tables; 0: none, or a rebase has made them invalid: they are rebuilt
	Tables  []string  `json:"tables"`
	Parks   bool      `json:"parks"`   // an event that cannot be handled is parked; else it stops the reader
	Since   time.Time `json:"since"`   // when the tables came into use
	Failing *Failing  `json:"failing"` // the event that stops it; null: none
	Work    *Work     `json:"work"`    // the rebuild or verification that is under way, or was the last; null: none
	Wanted  string    `json:"wanted"`  // an operator's request: rebuild or verify; "": none

	Shape     string `json:"-"` // digest of the DDL
	IsBuiltIn bool   `json:"-"` // the tables of the built-in projection
}

// Failing is an event that stops a reader.
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

// subscriberPrefix begins the readers of subscribers.
const subscriberPrefix = "subscriber/"

// ReadAll returns the registered states by reader. It never commits. Errors: [ledger.ErrNotMigrated].
func ReadAll(ctx context.Context, db ledger.DB) ([]State, error) { return list(ctx, db, "") }

// Read returns the state of a reader, and false if none is registered. It never commits. Errors:
// [ledger.ErrNotMigrated].
func Read(ctx context.Context, db ledger.DB, reader string) (s State, found bool, err error) {
	all, err := list(ctx, db, reader)
	if err != nil || len(all) == 0 {
		return State{}, false, err
	}
	return all[0], true, nil
}

func list(ctx context.Context, db ledger.DB, reader string) ([]State, error) {
	rows, err := db.Query(ctx, statesSQL, reader)
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
		r.IsBuiltIn = r.Name == feed.ProjectorReader
		r.Name = strings.TrimPrefix(r.Name, subscriberPrefix)
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
func Register(ctx context.Context, tx pgx.Tx, reader string, version int, shape string, parks bool) (bool, error) {
	var have int
	isNew, err := pgquery.Row(ctx, tx, registerSQL, []any{reader, int64(version), shape, number(parks)}, &have)
	return isNew, pgerr.Explain("register "+reader, err)
}

// SetTables sets the names of registered tables.
func SetTables(ctx context.Context, tx pgx.Tx, reader string, tables []string) error {
	_, err := tx.Exec(ctx, setTablesSQL, reader, pgarray.Of(tables...))
	return pgerr.Explain("register "+reader, err)
}

// Invalidate makes registered tables invalid, so that they are rebuilt.
func Invalidate(ctx context.Context, db ledger.DB, reader string) error {
	_, err := db.Exec(ctx, invalidateSQL, reader)
	return pgerr.Explain("invalidate the tables of "+reader, err)
}

// InvalidateAll makes the tables of all readers invalid, except the built-in projection's. They are rebuilt.
func InvalidateAll(ctx context.Context, db ledger.DB) error {
	_, err := db.Exec(ctx, invalidateAllSQL)
	return pgerr.Explain("invalidate tables", err)
}

// RecordFailure records that an event stops a reader.
func RecordFailure(ctx context.Context, db ledger.DB, reader string, e ledger.Event, failure error) error {
	_, err := db.Exec(ctx, failureRecordSQL, reader, int64(e.Position), string(e.Kind), string(e.BizID),
		int64(e.Version), DescribeFailure(failure))
	return pgerr.Explain("record a failure of "+reader, err)
}

// ClearFailure records that no event stops a reader.
func ClearFailure(ctx context.Context, db ledger.DB, reader string) error {
	_, err := db.Exec(ctx, failureClearSQL, reader)
	return pgerr.Explain("clear the failure of "+reader, err)
}

// number returns 1 for true and 0 for false.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
