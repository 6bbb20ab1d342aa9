package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// scanWork makes messages of the rows of unfinished.sql, and parks events that have none. Columns before those of
// unfinished.sql are scanned into prefix; a row without an event has nulls.
func (s *session) scanWork(ctx context.Context, rows pgx.Rows, prefix ...any) ([]message, error) {
	defer rows.Close()
	var b batch
	for rows.Next() {
		e, body, err := scanEvent(rows, prefix)
		if err != nil {
			return nil, err
		}
		if e.Version > 0 {
			b.add(s.encoder.encode(e, body))
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	rows.Close()
	for _, r := range b.rejects {
		if err := s.park(ctx, r.event, r.reason); err != nil {
			return nil, err
		}
	}
	return b.messages, nil
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
