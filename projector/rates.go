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
	//go:embed sql/rates_kinds.sql
	ratesKindsSQL string
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

// ReadFailures returns the failed attempts of each of some kinds by hour, from one whole hour to another, by the
// beginning of the hour in UTC. Hours without any are left out. The cost grows with the number of kinds and hours, not
// of tasks. It never commits.
//
// Errors: [ledger.ErrNotMigrated].
func ReadFailures(
	ctx context.Context, db ledger.DB, from, to time.Time, kinds ...ledger.Kind,
) (map[ledger.Kind]map[time.Time]int64, error) {
	rows, err := db.Query(ctx, ratesKindsSQL, pgquery.Time(from), pgquery.Time(to), pgarray.Of(kinds...))
	if err != nil {
		return nil, pgerr.Explain("read failed attempts", err)
	}
	defer rows.Close()
	all := make(map[ledger.Kind]map[time.Time]int64)
	for rows.Next() {
		var kind ledger.Kind
		var hour time.Time
		var failed int64
		if err := rows.Scan((*string)(&kind), pgquery.Micros(&hour), &failed); err != nil {
			return nil, pgerr.Explain("read failed attempts", err)
		}
		if all[kind] == nil {
			all[kind] = make(map[time.Time]int64)
		}
		all[kind][hour] = failed
	}
	return all, pgerr.Explain("read failed attempts", rows.Err())
}
