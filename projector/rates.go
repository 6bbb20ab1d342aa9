package projector

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/rates.sql
	ratesSQL string
	//go:embed sql/rates_hours.sql
	ratesHoursSQL string
)

// ReadRates returns the statistics of each of some kinds from one time to another, in steps of whole minutes, sorted by
// time and kind. No kinds means the sums of all kinds, with an empty Kind. Minute is the beginning of the step, a
// multiple of its length since 1970 in UTC. The histograms are empty, see [ReadKindStats]. Steps without events are
// left out. The cost grows with the number of kinds and minutes, not of tasks. If from, to and step are whole hours, it
// grows with the number of kinds and hours. It never commits.
//
// Errors: [*ledger.InvalidError] if step is not a whole number of minutes, [ledger.ErrNotMigrated].
func ReadRates(
	ctx context.Context, db ledger.DB, from, to time.Time, step time.Duration, kinds ...ledger.Kind,
) ([]KindStats, error) {
	if step < time.Minute || step%time.Minute != 0 {
		return nil, fmt.Errorf("read rates: %w", &ledger.InvalidError{Field: "step", Value: step.String(),
			Rule: "must be a whole number of minutes"})
	}
	only := ""
	if len(kinds) > 0 {
		only = pgarray.Of(kinds...)
	}
	sql := ratesSQL
	if step%time.Hour == 0 && from.Equal(from.Truncate(time.Hour)) && to.Equal(to.Truncate(time.Hour)) {
		sql = ratesHoursSQL
	}
	rows, err := db.Query(ctx, sql, pgquery.Time(from), pgquery.Time(to), int64(step/time.Second),
		pgquery.Optional(only))
	if err != nil {
		return nil, pgerr.Explain("read rates", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s KindStats, err error) {
		err = row.Scan(pgquery.Micros(&s.Minute), &s.Kind, &s.Enqueued, &s.Started, &s.Succeeded, &s.Failed,
			&s.Dead, &s.Cancelled)
		return s, err
	})
	return all, pgerr.Explain("read rates", err)
}
