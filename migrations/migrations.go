// Package migrations holds the schema of taskledger as numbered SQL files and applies them.
//
// The files are plain goose migrations: give [FS] to a goose of your own, print them with
// `taskledger migrate up --print`, or call [Up]. There is no way down: a ledger for audit keeps its
// history. Everything lives in two schemas: taskledger, which users read and call, with the version table, and
// taskledger_internal, functions that only taskledger calls. Dropping both removes every trace.
//
// Migrating needs a direct connection: it holds a session-level advisory lock, which a pooler in transaction mode would
// lose, so [Up] refuses a pooler. The address is an address for pgxpool: its pool_* parameters are accepted and
// ignored.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/taskledger/taskledger/ledger"
)

// FS holds the migrations, one numbered file each.
//
//go:embed [0-9]*.sql
var FS embed.FS

// ErrUnreleased is returned if the schema was made by a version of taskledger before its first release. Those
// migrations were different, and no migration continues from them.
var ErrUnreleased = errors.New("the schema taskledger was made by an unreleased version and cannot be upgraded: " +
	"create a new database, or drop the schemas with all tasks (" +
	"drop schema if exists taskledger, taskledger_internal cascade) and migrate again")

// Status is one migration and when it was applied.
type Status struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Up applies every migration that is missing, each in a transaction of its own.
// Several processes may call it at once: one migrates, and the others wait and apply nothing.
// If a migration fails, the error names it, and those before it stay applied.
//
// Errors: [ErrUnreleased] and [ErrPooler], before anything is changed.
func Up(ctx context.Context, databaseURL string) error {
	_, err := Apply(ctx, databaseURL)
	return err
}

// Apply does the same as [Up], and returns the names of the migrations that this call applied, in order. Migrations
// that another process applied meanwhile are not included.
func Apply(ctx context.Context, databaseURL string) (applied []string, err error) {
	if err := refusePooler(ctx, databaseURL); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	err = withProvider(ctx, databaseURL, func(db *sql.DB, p *goose.Provider) error {
		// goose creates its version table in the schema, so the schema must exist.
		if _, err := db.ExecContext(ctx, `create schema if not exists taskledger`); err != nil && !hasSchema(ctx, db) {
			return fmt.Errorf("create schema taskledger: %w", err)
		}
		results, err := p.Up(ctx)
		for _, r := range results {
			applied = append(applied, r.Source.Path)
		}
		if err != nil || len(applied) == 0 {
			return err
		}
		_, err = db.ExecContext(ctx, versionTableComment)
		return err
	})
	return applied, err
}

// Check returns nil if every migration is applied. It changes nothing.
//
// Errors: [ledger.ErrNotMigrated] if a migration is missing, [ErrUnreleased].
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
//
// Errors: [ErrUnreleased].
func List(ctx context.Context, databaseURL string) ([]Status, error) {
	var all []Status
	err := withProvider(ctx, databaseURL, func(db *sql.DB, p *goose.Provider) error {
		applied, err := readVersionTable(ctx, db)
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

// withProvider calls f with a goose provider on a database that is not of an unreleased version.
func withProvider(ctx context.Context, databaseURL string, f func(*sql.DB, *goose.Provider) error) error {
	db, err := open(databaseURL)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { _ = db.Close() }() // every statement has returned its own error
	if err := db.PingContext(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := refuseUnreleased(ctx, db); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	store, err := database.NewStore(goose.DialectPostgres, versionTable)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, FS,
		goose.WithStore(store), goose.WithSessionLocker(sessionLock{}))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := f(db, p); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// open returns a database of one address.
func open(databaseURL string) (*sql.DB, error) {
	config, err := parseAddress(databaseURL)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config), nil
}

// parseAddress parses an address by pgxpool, whose pool_* parameters are not the server's. It fixes the settings that
// change the text of a time: goose scans times in every query mode, and its version table stores them without a time
// zone.
func parseAddress(databaseURL string) (*pgx.ConnConfig, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	parameters := config.ConnConfig.RuntimeParams
	for name, value := range map[string]string{"datestyle": "ISO", "timezone": "UTC", "client_encoding": "UTF8"} {
		maps.DeleteFunc(parameters, func(n, _ string) bool { return strings.EqualFold(n, name) })
		parameters[name] = value
	}
	return config.ConnConfig, nil
}

// refuseUnreleased returns [ErrUnreleased] if the only version table is the one from before the first release, which
// has another name. Next to today's table, it only means that an old command has failed here.
func refuseUnreleased(ctx context.Context, db *sql.DB) error {
	today, err := hasTable(ctx, db, versionTable)
	if err != nil || today {
		return err
	}
	old, err := hasTable(ctx, db, "taskledger.schema_version")
	if err == nil && old {
		return ErrUnreleased
	}
	return err
}

// hasSchema reports whether the schema exists: another process may have created it meanwhile, or the
// role may use it but not create schemas.
func hasSchema(ctx context.Context, db *sql.DB) bool {
	var exists bool
	err := db.QueryRowContext(ctx, `select to_regnamespace('taskledger') is not null`).Scan(&exists)
	return err == nil && exists
}

func hasTable(ctx context.Context, db *sql.DB, name string) (exists bool, err error) {
	err = db.QueryRowContext(ctx, `select to_regclass($1) is not null`, name).Scan(&exists)
	return exists, err
}
