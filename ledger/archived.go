package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

//go:embed sql/archived.sql
var archivedSQL string

// ArchivedError is the error of a read of a task whose events the archive has removed. It is an [ErrUnknownTask], too.
type ArchivedError struct {
	Key     Key
	Version Version // of its last event
	State   State   // of the task
	At      time.Time
	File    string // that contains its events; "": none

	// ErasedUntil is the position up to which the events lack data, meta and actor; 0: they were not erased.
	ErasedUntil Position
}

// Error states when the task was archived, and where.
func (e *ArchivedError) Error() string {
	where := "its events are in no file"
	if e.File != "" {
		where = "its events are in " + e.File
	}
	return fmt.Sprintf("task %s was archived at %s, %s at version %d: %s", e.Key, e.At.UTC().Format(time.RFC3339),
		e.State, e.Version, where)
}

// Unwrap returns [ErrUnknownTask].
func (*ArchivedError) Unwrap() error { return ErrUnknownTask }

// Archived returns the archived tasks among keys, in the order of keys, and nil for the others. A key that was enqueued
// again after that is still archived. It never commits.
func Archived(ctx context.Context, db DB, keys ...Key) ([]*ArchivedError, error) {
	var kinds, ids pgarray.Builder
	for _, k := range keys {
		kinds.Add(string(k.Kind))
		ids.Add(string(k.BizID))
	}
	all := make([]*ArchivedError, len(keys))
	rows, err := db.Query(ctx, archivedSQL, kinds.String(), ids.String())
	if err != nil {
		return nil, pgerr.Explain("read archived keys", err)
	}
	var n int64
	var a ArchivedError
	_, err = pgx.ForEachRow(rows, []any{&n, (*int32)(&a.Version), (*string)(&a.State), pgquery.Micros(&a.At), &a.File,
		(*int64)(&a.ErasedUntil)},
		func() error {
			found := a
			found.Key = keys[n-1]
			all[n-1] = &found
			return nil
		})
	return all, pgerr.Explain("read archived keys", err)
}

// unknownTask returns the error of a task without events: [ErrUnknownTask], or an [*ArchivedError].
func unknownTask(ctx context.Context, db DB, k Key) error {
	archived, err := Archived(ctx, db, k)
	switch {
	case err != nil:
		return err
	case archived[0] != nil:
		return archived[0]
	}
	return fmt.Errorf("%s: %w", k, ErrUnknownTask)
}
