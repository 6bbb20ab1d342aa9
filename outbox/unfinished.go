package outbox

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// scanUnfinished reads a row of unfinished.sql. The event has version 0 if the row has none.
func scanUnfinished(rows pgx.Rows) (e ledger.Event, reached ledger.Position, body payloadSource, err error) {
	var walked, position *int64
	var version, attempt *int32
	var shard *int
	var kind, id, typ, meta, argsData, argsMeta *string
	var at time.Time
	err = rows.Scan(&walked, &position, &version, &attempt, &shard, &typ, pgquery.Micros(&at), &kind, &id,
		&meta, &argsData, &argsMeta)
	if err != nil {
		return e, 0, body, err
	}
	if walked != nil {
		reached = ledger.Position(*walked)
	}
	if position == nil {
		return e, reached, body, nil
	}
	e = ledger.Event{
		Position: ledger.Position(*position), Key: ledger.Key{Kind: ledger.Kind(*kind), BizID: ledger.BizID(*id)},
		Version: ledger.Version(*version), Attempt: ledger.Attempt(*attempt), Shard: ledger.Shard(*shard),
		Type: ledger.EventType(*typ), RecordedAt: at, Meta: text(meta),
	}
	return e, reached, payloadSource{text(argsData), text(argsMeta)}, nil
}
