package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"time"
)

// versionTable is the table in which goose records the migrations that are applied.
const versionTable = "taskledger.migration"

const versionTableComment = `comment on table taskledger.migration is 'The migrations that are applied, one row each.'`

//go:embed version_table.sql
var versionTableSQL string

// readVersionTable returns when each migration was applied. It does not create the table.
func readVersionTable(ctx context.Context, db *sql.DB) (map[int64]time.Time, error) {
	applied := make(map[int64]time.Time)
	exists, err := hasTable(ctx, db, versionTable)
	if err != nil || !exists {
		return applied, err
	}
	const query = `select version_id, max(tstamp) from ` + versionTable + ` where is_applied group by version_id`
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		var at time.Time
		if err := rows.Scan(&version, &at); err != nil {
			return nil, err
		}
		applied[version] = at.UTC()
	}
	return applied, rows.Err()
}
