package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgserver"
)

// postgresSettings are the settings of our server that differ from the distribution's defaults. They are
// the same for every system.
var postgresSettings = map[string]string{
	"shared_buffers":     "512MB",
	"max_wal_size":       "8GB",
	"min_wal_size":       "2GB",
	"checkpoint_timeout": "15min",
	"max_connections":    "300",
}

// databaseServer is the server of the databases of a run.
type databaseServer struct {
	own   *pgserver.Server // nil: the server of -database-url
	dir   string           // directory of own and of the brokers
	base  string           // URL of the database on whose server the others are created
	admin *pgx.Conn
	count int // databases created
}

// openServer starts a server, or connects to the one in -database-url.
func openServer(ctx context.Context, c config) (_ *databaseServer, err error) {
	s := &databaseServer{base: c.databaseURL}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "taskledger-bench-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(s.dir, 0o711); err != nil { // the server's user must be able to enter
		return nil, err
	}
	if s.base == "" {
		s.own, err = pgserver.Start(ctx, pgserver.Config{
			Dir: filepath.Join(s.dir, "postgres"), Binaries: c.binaries, NoSync: c.noSync, Settings: postgresSettings,
		})
		if err != nil {
			return nil, err
		}
		s.base = s.own.URL("postgres")
	}
	if s.admin, err = pgx.Connect(ctx, s.base); err != nil {
		return nil, err
	}
	if s.own == nil && !c.force {
		if err := checkEmpty(ctx, s.admin); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// checkEmpty returns an error if the database has tables with data.
func checkEmpty(ctx context.Context, db *pgx.Conn) error {
	var table string
	err := db.QueryRow(ctx, statement("real_data")).Scan(&table)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("the database of -database-url has data (%q): the run loads its server, holds transactions open "+
		"and writes gigabytes of WAL; use an empty database, or -force", table)
}

// create creates a database. The caller must drop it.
func (s *databaseServer) create(ctx context.Context) (name, address string, err error) {
	s.count++
	name = fmt.Sprintf("taskledger_bench_%d_%d", os.Getpid(), s.count)
	if _, err := s.admin.Exec(ctx, "create database "+name+" template template0"); err != nil {
		return "", "", err
	}
	u, err := url.Parse(s.base)
	if err != nil {
		return "", "", err
	}
	u.Path = "/" + name
	return name, u.String(), nil
}

// drop removes a database and closes its connections. It ignores the cancellation of ctx.
func (s *databaseServer) drop(ctx context.Context, name string) error {
	_, err := s.admin.Exec(context.WithoutCancel(ctx), "drop database if exists "+name+" with (force)")
	return err
}

// checkpoint writes out the dirty pages of earlier trials.
func (s *databaseServer) checkpoint(ctx context.Context) error {
	_, err := s.admin.Exec(ctx, "checkpoint")
	return err
}

func (s *databaseServer) close() error {
	var err error
	if s.admin != nil {
		err = s.admin.Close(context.Background())
	}
	if s.own != nil {
		err = errors.Join(err, s.own.Close())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
