// Package migrations holds the schema of taskledger as numbered SQL files and applies them.
//
// The files are plain goose migrations: feed [FS] to a goose of your own, print them with
// `taskledger migrate sql`, or call [Up]. They only go forward; a ledger for audit has no way
// down. Everything lives in the schema taskledger, the version table included, so that
// dropping the schema removes every trace.
//
// Migrating needs a direct connection: it holds a session-level advisory lock, which a pooler
// in transaction mode would lose.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/taskledger/taskledger/ledger"
)

// FS holds the migrations, one numbered file each.
//
//go:embed [0-9]*.sql
var FS embed.FS

// versionTable is goose's own; it lives beside what it describes.
const versionTable = "taskledger.schema_version"

// Status is one migration and when it was applied.
type Status struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Up applies every migration that is missing and commits each in a transaction of its own.
// Any number of processes may call it at once: one migrates, the others wait and find nothing
// left to do. If a migration fails, those before it stay applied and the error names it.
func Up(ctx context.Context, databaseURL string) error {
	_, err := Apply(ctx, databaseURL)
	return err
}

// Apply is [Up], and tells the names of the migrations that this call applied, in order: not
// those that another process applied while it waited.
func Apply(ctx context.Context, databaseURL string) (applied []string, err error) {
	err = withProvider(ctx, databaseURL, func(db *sql.DB, p *goose.Provider) error {
		// goose keeps its version table in the schema, so the schema comes first.
		if _, err := db.ExecContext(ctx, `create schema if not exists taskledger`); err != nil && !alreadyThere(ctx, db) {
			return fmt.Errorf("create schema taskledger: %w", err)
		}
		results, err := p.Up(ctx)
		for _, r := range results {
			applied = append(applied, r.Source.Path)
		}
		return err
	})
	return applied, err
}

// Check answers nil if every migration is applied, and [ledger.ErrNotMigrated] if one is missing.
// It changes nothing.
func Check(ctx context.Context, databaseURL string) error {
	all, err := List(ctx, databaseURL)
	if err != nil {
		return err
	}
	for _, s := range all {
		if !s.Applied {
			return fmt.Errorf("%w: %s is missing", ledger.ErrNotMigrated, s.Name)
		}
	}
	return nil
}

// List returns all migrations in order, applied or not. It changes nothing.
func List(ctx context.Context, databaseURL string) ([]Status, error) {
	var all []Status
	err := withProvider(ctx, databaseURL, func(db *sql.DB, p *goose.Provider) error {
		applied, err := appliedAt(ctx, db)
		if err != nil {
			return err
		}
		for _, s := range p.ListSources() {
			at, ok := applied[s.Version]
			all = append(all, Status{Version: s.Version, Name: s.Path, Applied: ok, AppliedAt: at})
		}
		return nil
	})
	return all, err
}

//go:embed version_table.sql
var versionTableSQL string

// SQL returns the migrations as one script for people who apply their schema with a tool of
// their own. It notes what it applied, so that [Check] and [Up] know. The script is not
// idempotent; it has no transaction of its own.
func SQL() (string, error) {
	var b strings.Builder
	b.WriteString("create schema if not exists taskledger;\n")
	names, err := fs.Glob(FS, "*.sql")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, err := FS.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n-- %s\n", name)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "-- +goose") {
				b.WriteString(line)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\ninsert into taskledger.schema_version (version_id, is_applied) values (0, true)", versionTableSQL)
	for i := range names { // numbered from 1 without gaps, in order
		fmt.Fprintf(&b, ", (%d, true)", i+1)
	}
	b.WriteString(";\n")
	return b.String(), nil
}

// appliedAt reads the version table without creating it.
func appliedAt(ctx context.Context, db *sql.DB) (map[int64]time.Time, error) {
	var there bool
	if err := db.QueryRowContext(ctx, `select to_regclass($1) is not null`, versionTable).Scan(&there); err != nil {
		return nil, err
	}
	applied := make(map[int64]time.Time)
	if !there {
		return applied, nil
	}
	rows, err := db.QueryContext(ctx, `select version_id, max(tstamp) from `+versionTable+` where is_applied group by version_id`)
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

// alreadyThere tells a lost race for the schema (or a role that may not create schemas, where
// it exists) from a real failure.
func alreadyThere(ctx context.Context, db *sql.DB) bool {
	var there bool
	err := db.QueryRowContext(ctx, `select to_regnamespace('taskledger') is not null`).Scan(&there)
	return err == nil && there
}

func withProvider(ctx context.Context, databaseURL string, f func(*sql.DB, *goose.Provider) error) error {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	store, err := database.NewStore(goose.DialectPostgres, versionTable)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, FS, goose.WithStore(store), goose.WithSessionLocker(sessionLock{}))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := f(db, p); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
