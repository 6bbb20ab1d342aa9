package dispatcher

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/discard_archived.sql
	discardArchivedSQL string
)

// repeated returns the keys of the tasks of a page whose version 1 has an archived key, and discards these tasks unless
// that has happened. Version 1 must not begin: the version after it would not meet the events that follow the archived
// ones.
//
// Each renewal of the lease reads whether there is an archive: its first run removes nothing until each dispatcher has
// renewed its lease, or has lost it.
func (o *office) repeated(ctx context.Context, events []ledger.Event) (map[ledger.Key]bool, error) {
	if !o.hasArchive {
		return nil, nil
	}
	var first []ledger.Key
	for i := range events {
		if events[i].Version == 1 {
			first = append(first, events[i].Key)
		}
	}
	return duplicates(ctx, o.conn, first)
}

// duplicates discards the tasks among keys that were archived before and enqueued again, and returns their keys. No
// worker may begin them.
func duplicates(ctx context.Context, db ledger.DB, keys []ledger.Key) (map[ledger.Key]bool, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var kinds, ids pgarray.Builder
	for _, k := range keys {
		kinds.Add(string(k.Kind))
		ids.Add(string(k.BizID))
	}
	rows, err := db.Query(ctx, discardArchivedSQL, kinds.String(), ids.String())
	if err != nil {
		return nil, pgerr.Explain("discard archived tasks", err)
	}
	var all map[ledger.Key]bool
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&n}, func() error {
		if all == nil {
			all = make(map[ledger.Key]bool)
		}
		all[keys[n-1]] = true
		return nil
	})
	return all, pgerr.Explain("discard archived tasks", err)
}

// discardArchived discards the tasks in line whose keys were archived before. A line passes over them.
func (l *lines) discardArchived(ctx context.Context, events []ledger.Event) error {
	var first []ledger.Key
	for i := range events {
		if events[i].Version == 1 && events[i].OrderKey != "" {
			first = append(first, events[i].Key)
		}
	}
	_, err := duplicates(ctx, l.db, first)
	return err
}
