package feed

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/database.sql
var databaseSQL string

// Tail returns a feed that begins at the present and keeps no cursor: the events that are committed after the call,
// while the process lives. It needs only the rights to read, audits nothing, and its pages cannot be advanced. db is
// as for [Open].
//
// Errors: [ErrNotPrimary], [ledger.ErrNotMigrated]. After [ErrCrashed] of the feed, events may be missing. A feed with
// only the rights to read returns it too, if it was the first feed in a new database.
func Tail(ctx context.Context, db ledger.DB, o *Options) (*Feed, error) {
	options := o.withDefaults()
	options.AuditEvery = -1
	f := &Feed{
		db: db, reader: "tail", options: options, now: time.Now, isTail: true,
		windowSQL: windowSQL, pageSQL: pageSQL, logins: loginNames{},
		moments: newMoments(time.Now()),
		rest: rest{wake: options.Wake, isHinted: options.Hinted && options.Wake != nil, reports: options.Reports,
			least: options.Gather, most: options.Idle, since: time.Now()},
	}
	read := func() error {
		_, err := pgquery.Row(ctx, db, databaseSQL, nil, &f.database.origin, &f.database.incarnation,
			&f.database.timeline)
		return err
	}
	err := read()
	if err == nil && f.database.incarnation == "" {
		// Another feed would give the database one later, which looks like a crash. Without the right to do so now,
		// this feed is ended by that.
		if _, refused := db.Exec(ctx, incarnationSQL); refused == nil {
			err = read()
		}
	}
	if err != nil {
		return nil, pgerr.Explain("tail feed", err)
	}
	begin := Beginning()
	begin.Top = -1 // so that the window is open although the ledger may be empty
	first := options
	first.PageSize = 1
	w, err := openWindow(ctx, db, windowSQL, begin, f.database.incarnation, first, memory{expected: 1}, 0)
	if err != nil {
		return nil, pgerr.Explain("tail feed", err)
	}
	f.place.Seen = w.until
	return f, nil
}
