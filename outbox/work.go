package outbox

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// work is messages whose content was read with their events.
type work struct {
	messages []message
	last     ledger.Position // of the last event, also if it has no message
	rows     int             // that were read
	isCut    bool            // there are more, which were not read because of their size
}

// errManyArgs is the error of messages that must not be loaded at once.
var errManyArgs = errors.New("the args of the tasks are too many for one page")

// scanWork makes messages of the rows of unfinished.sql, and parks events that have none. It ends after the row with
// which they have at least limit bytes. Columns before those of unfinished.sql are scanned into prefix; a row without
// an event has nulls.
func (s *session) scanWork(ctx context.Context, rows pgx.Rows, limit int64, prefix ...any) (work, error) {
	defer rows.Close()
	var w work
	var b batch
	var size int64
	for rows.Next() {
		if w.isCut = size >= limit; w.isCut {
			break
		}
		e, body, err := scanEvent(rows, prefix)
		if err != nil {
			return w, err
		}
		w.rows++
		if e.Version > 0 {
			w.last = e.Position
			size += int64(len(body.data) + len(body.meta))
			b.add(s.again.encode(&e, body))
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return w, err
	}
	w.messages = b.messages
	return w, s.parkAll(ctx, b.rejects)
}

// scanAllWork is scanWork for messages that precede n others. It returns [errManyArgs] if there are too many for these.
func (s *session) scanAllWork(ctx context.Context, rows pgx.Rows, n int) ([]message, error) {
	limit := int64(maxArgsBytes)
	if n == 1 {
		limit = math.MaxInt64
	}
	w, err := s.scanWork(ctx, rows, limit)
	if err == nil && w.isCut {
		err = errManyArgs
	}
	return w.messages, err
}

// scanEvent reads a row of unfinished.sql. The event has version 0 if the row has none.
func scanEvent(rows pgx.Rows, prefix []any) (e ledger.Event, body payloadSource, err error) {
	var position *int64
	var version, attempt *int32
	var shard *int
	var kind, id, typ, meta, argsData, argsMeta *string
	var at time.Time
	err = rows.Scan(append(prefix, &position, &version, &attempt, &shard, &typ, pgquery.Micros(&at), &kind, &id,
		&meta, &argsData, &argsMeta)...)
	if err != nil || position == nil {
		return e, body, err
	}
	e = ledger.Event{
		Position: ledger.Position(*position), Key: ledger.Key{Kind: ledger.Kind(*kind), BizID: ledger.BizID(*id)},
		Version: ledger.Version(*version), Attempt: ledger.Attempt(*attempt), Shard: ledger.Shard(*shard),
		Type: ledger.EventType(*typ), RecordedAt: at, Meta: text(meta),
	}
	return e, payloadSource{text(argsData), text(argsMeta)}, nil
}
