package workers

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/version_starts.sql
var versionStartsSQL string

// VersionStart is when the first worker with a program version began.
type VersionStart struct {
	Version string    `json:"version"`
	At      time.Time `json:"at"`
}

// ReadVersionStarts returns the versions whose first worker began since a moment, at most limit, the oldest first. A
// worker is on record while it lives and for a day after, so a version without workers for longer counts as new. It
// never commits.
// commits.
//
// Errors: [*ledger.InvalidError] if limit is less than 1, [ledger.ErrNotMigrated], and errors of the database.
func ReadVersionStarts(ctx context.Context, db ledger.DB, since time.Time, limit int) ([]VersionStart, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read versions of workers: %w", err)
	}
	rows, err := db.Query(ctx, versionStartsSQL, since.UnixMicro(), int64(limit))
	if err != nil {
		return nil, pgerr.Explain("read versions of workers", err)
	}
	defer rows.Close()
	var all []VersionStart
	for rows.Next() {
		var v VersionStart
		var text string
		if err := rows.Scan(&text, pgquery.Micros(&v.At)); err != nil {
			return nil, pgerr.Explain("read versions of workers", err)
		}
		if v.Version = parseVersion(json.RawMessage(text)); v.Version != "" {
			all = append(all, v)
		}
	}
	slices.Reverse(all)
	return all, pgerr.Explain("read versions of workers", rows.Err())
}
