// Package eventrows scans the rows of table taskledger.event.
package eventrows

import (
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
)

// Scan returns the events of a query that selects, in this order: position, version, attempt, shard, type::text,
// recorded_at in microseconds since 1970, kind, biz_id, actor and the login's name with ” for null, data_version,
// priority, partition with ” for null, run with 0 for null, order_key with ” for null, data::text, meta::text.
// Columns that the query selects before them are scanned into before, for each event again. An error is the last pair.
// The loop may break; rows is closed when it ends.
func Scan(rows pgx.Rows, before ...any) iter.Seq2[ledger.Event, error] { return scan(rows, before...) }

var scan = unexported.ScanEvents.(func(pgx.Rows, ...any) iter.Seq2[ledger.Event, error])
