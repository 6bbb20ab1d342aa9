// Package embedded runs PostgreSQL in a data directory, for users without servers. A later start continues with the
// same data and address. The other commands find the server by a file there, and the NATS server that serve runs for
// its database as they do for any database (package broker).
//
//	postgres         PostgreSQL (package pgserver), with fsync on
//	nats-…           NATS
//	server.json      an [Announcement], while the server runs
//	addresses.json   the port, for the next start
package embedded

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/reserve"
)

// Database is the name of the database that [Start] makes.
const Database = "taskledger"

// Config configures the server.
type Config struct {
	Dir      string // data directory. Start makes it if it does not exist.
	Binaries string // directory of postgres and initdb. Default: search.
	HTTPURL  string // of this process's HTTP server, for the announcement. Default: none.

	// Prepare is called with the address of the database before the server is announced. Default: nothing.
	Prepare func(ctx context.Context, databaseURL string) error

	// Fetch returns that directory where PostgreSQL is not installed. Default: Start fails.
	Fetch func(context.Context) (dir string, err error)
}

// Server is a PostgreSQL server of this process. It ends with this process.
type Server struct {
	DatabaseURL string // of the database [Database]
	LastPort    int    // of the last start, if another process listens on it now; else 0

	postgres *pgserver.Server
	withdraw func() error
}

// Start starts the server and announces it. The error wraps [reserve.ErrHeld] if another server runs in the directory,
// and is a *[pgserver.NoBinariesError] if PostgreSQL is not installed.
func Start(ctx context.Context, c Config) (_ *Server, err error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	if other, err := Attach(dir); err == nil { // the demo's servers, whose data is elsewhere
		return nil, fmt.Errorf("data directory %s in use: %w by process %d, whose servers run there",
			dir, reserve.ErrHeld, other.PID)
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	s := &Server{withdraw: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	port, isTaken := readPort(dir)
	if isTaken {
		s.LastPort, port = port, 0
	}
	s.postgres, err = pgserver.Start(ctx, pgserver.Config{
		Dir: filepath.Join(dir, "postgres"), Binaries: c.Binaries, Fetch: c.Fetch, Port: port,
	})
	if err != nil {
		return nil, err
	}
	if err := createDatabase(ctx, s.postgres.URL("postgres")); err != nil {
		return nil, err
	}
	s.DatabaseURL = s.postgres.URL(Database)
	if err := writePort(dir, s.DatabaseURL); err != nil {
		return nil, fmt.Errorf("write the address: %w", err)
	}
	if c.Prepare != nil {
		if err := c.Prepare(ctx, s.DatabaseURL); err != nil {
			return nil, err
		}
	}
	if s.withdraw, err = Announce(dir, Announcement{DatabaseURL: s.DatabaseURL, HTTPURL: c.HTTPURL}); err != nil {
		s.withdraw = func() error { return nil }
		return nil, fmt.Errorf("announce the server: %w", err)
	}
	return s, nil
}

// Lost returns a channel that is closed when PostgreSQL has ended, by Close or by itself.
func (s *Server) Lost() <-chan struct{} { return s.postgres.Done() }

// Close removes the announcement and stops the server. It keeps the data.
func (s *Server) Close() error {
	err := s.withdraw()
	if s.postgres != nil {
		err = errors.Join(err, s.postgres.Close())
	}
	return err
}

func createDatabase(ctx context.Context, admin string) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "create database "+Database)
	if pgerr.Is(err, pgerr.DuplicateDatabase) { // from an earlier start
		return nil
	}
	return err
}
