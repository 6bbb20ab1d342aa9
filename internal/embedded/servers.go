// Package embedded runs PostgreSQL and NATS in one data directory, for users without servers. A later
// start continues with the same data and addresses. The other commands find the servers by a file there.
//
//	postgres         PostgreSQL (package pgserver), with fsync on
//	nats             NATS (package natsserver)
//	server.json      an [Announcement], while the servers run
//	addresses.json   the ports, and the passwords of NATS, for the next start
//
// NATS has a user for each role, as package natsconfig configures it, and one subscriber.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/reserve"
)

// Database is the name of the database that [Start] makes.
const Database = "taskledger"

// Config configures the servers.
type Config struct {
	Dir      string       // data directory. Start makes it if it does not exist.
	Binaries string       // directory of postgres and initdb. Default: search.
	Log      *slog.Logger // receives the log of NATS. Default: disabled.
}

// Servers are a PostgreSQL and a NATS server of this process. They end with this process.
type Servers struct {
	DatabaseURL string            // of the database [Database]. Start does not migrate it.
	NATSURLs    map[string]string // by user of package natsconfig

	postgres *pgserver.Server
	nats     *natsserver.Server
	withdraw func() error
}

// Start starts both servers and announces them. The error wraps [reserve.ErrHeld] if other servers run
// in the directory, and is a *[pgserver.NoBinariesError] if PostgreSQL is not installed.
func Start(ctx context.Context, c Config) (_ *Servers, err error) {
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
	last := readAddresses(dir)
	s := &Servers{withdraw: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.postgres, err = pgserver.Start(ctx, pgserver.Config{
		Dir: filepath.Join(dir, "postgres"), Binaries: c.Binaries, Port: last.PostgresPort,
	})
	if err != nil {
		return nil, err
	}
	if err := createDatabase(ctx, s.postgres.URL("postgres")); err != nil {
		return nil, err
	}
	accounts, passwords := natsconfig.Own(last.NATSPasswords)
	s.nats, err = natsserver.Start(natsserver.Config{
		Dir: filepath.Join(dir, "nats"), Log: c.Log, Port: last.NATSPort, Accounts: accounts,
	})
	if err != nil {
		return nil, err
	}
	s.DatabaseURL, s.NATSURLs = s.postgres.URL(Database), passwords.URLs(s.nats.Host())
	if err := writeAddresses(dir, s.DatabaseURL, s.nats.Host(), passwords); err != nil {
		return nil, fmt.Errorf("write the addresses: %w", err)
	}
	if s.withdraw, err = Announce(dir, s.DatabaseURL, s.NATSURLs); err != nil {
		s.withdraw = func() error { return nil }
		return nil, fmt.Errorf("announce the servers: %w", err)
	}
	return s, nil
}

// NATS returns the NATS server. Close stops it.
func (s *Servers) NATS() *natsserver.Server { return s.nats }

// Lost returns a channel that is closed when PostgreSQL has ended, by Close or by itself.
func (s *Servers) Lost() <-chan struct{} { return s.postgres.Done() }

// Close removes the announcement and stops both servers. It keeps the data.
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
