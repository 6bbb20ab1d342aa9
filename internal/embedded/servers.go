// Package embedded runs PostgreSQL and NATS for those who have neither: both in one data
// directory, which a later start finds again, and announced there to the other commands.
//
//	postgres         PostgreSQL (package pgserver), with fsync on
//	nats             NATS (package natsserver)
//	server.json      an [Announcement], while they run
//	addresses.json   their ports and the token of NATS, which later ones have again
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/reserve"
)

// Database is the name of the database that [Start] makes.
const Database = "taskledger"

// Config says where and how the servers run.
type Config struct {
	Dir      string       // holds everything; made if it does not exist
	Binaries string       // directory of postgres and initdb; empty: searched
	Log      *slog.Logger // gets what NATS says; nil: nobody
}

// Servers are a PostgreSQL and a NATS server of this process. They end with it.
type Servers struct {
	DatabaseURL string // of the database, which exists but is not migrated by Start
	NATSURL     string

	postgres *pgserver.Server
	nats     *natsserver.Server
	withdraw func() error
}

// Start starts both servers and announces them. The error wraps reserve.ErrHeld if others run in
// the directory, and is a *pgserver.NoBinariesError if PostgreSQL is not installed.
func Start(ctx context.Context, c Config) (_ *Servers, err error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	if others, err := Attach(dir); err == nil { // a demo's, which has its data elsewhere
		return nil, fmt.Errorf("data directory %s in use: %w by process %d, whose servers run there", dir, reserve.ErrHeld, others.PID)
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	last := readKept(dir)
	s := &Servers{withdraw: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.postgres, err = pgserver.Start(ctx, pgserver.Config{Dir: filepath.Join(dir, "postgres"), Binaries: c.Binaries, Port: last.PostgresPort}); err != nil {
		return nil, err
	}
	if err := createDatabase(ctx, s.postgres.URL("postgres")); err != nil {
		return nil, err
	}
	if s.nats, err = natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "nats"), Log: c.Log, Port: last.NATSPort, Token: last.NATSToken}); err != nil {
		return nil, err
	}
	s.DatabaseURL, s.NATSURL = s.postgres.URL(Database), s.nats.URL()
	if err := keep(dir, s.DatabaseURL, s.NATSURL); err != nil {
		return nil, fmt.Errorf("keep the addresses: %w", err)
	}
	if s.withdraw, err = Announce(dir, s.DatabaseURL, s.NATSURL); err != nil {
		s.withdraw = func() error { return nil }
		return nil, fmt.Errorf("announce the servers: %w", err)
	}
	return s, nil
}

// Lost returns a channel that is closed when PostgreSQL has ended, wanted or not.
func (s *Servers) Lost() <-chan struct{} { return s.postgres.Done() }

// Close withdraws the announcement and stops both servers. The data stays.
func (s *Servers) Close() error {
	err := s.withdraw()
	if s.nats != nil {
		err = errors.Join(err, s.nats.Close())
	}
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
