package console

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

// versionStart is when the first worker with a program version began.
type versionStart struct {
	Version string
	At      time.Time
}

// readVersionStarts returns the versions whose first worker began since a moment, at most limit, the oldest first. A
// worker is on record while it lives and for a day after, so a version without workers for longer counts as new.
//
// Errors: [*ledger.InvalidError] if limit is less than 1, [ledger.ErrNotMigrated], and errors of the database.
func readVersionStarts(ctx context.Context, db ledger.DB, since time.Time, limit int) ([]versionStart, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read versions of workers: %w", err)
	}
	rows, err := db.Query(ctx, versionStartsSQL, since.UnixMicro(), int64(limit))
	if err != nil {
		return nil, pgerr.Explain("read versions of workers", err)
	}
	defer rows.Close()
	var all []versionStart
	for rows.Next() {
		var v versionStart
		var text string
		if err := rows.Scan(&text, pgquery.Micros(&v.At)); err != nil {
			return nil, pgerr.Explain("read versions of workers", err)
		}
		if v.Version = parseVersion(text); v.Version != "" {
			all = append(all, v)
		}
	}
	slices.Reverse(all)
	return all, pgerr.Explain("read versions of workers", rows.Err())
}

// maxVersion is the greatest length of a version, as of workers.
const maxVersion = 200

// parseVersion returns the version of the program of a worker, or "" if it is unknown.
func parseVersion(text string) (version string) {
	if json.Unmarshal([]byte(text), &version) != nil || len(version) > maxVersion {
		return ""
	}
	return version
}
