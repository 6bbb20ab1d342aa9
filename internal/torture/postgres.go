package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/migrations"
)

const (
	database   = "torture"
	rolePrefix = "torture"
	password   = "password-of-logins"
)

//go:embed schema.sql
var schemaSQL string

// cluster is a PostgreSQL primary with a streaming standby.
type cluster struct {
	dir     string
	disk    disk
	number  int // of servers that were started
	primary *pgserver.Server
	standby *pgserver.Server // nil: pg_basebackup is missing

	primaryDir string
	standbyDir string
	clock      *pgserver.Clock // nil: libfaketime is missing
}

// settings keep files that a fault fills small, and detect a cut connection soon.
var settings = map[string]string{
	"max_prepared_transactions": "10", "max_wal_size": "96MB", "min_wal_size": "32MB", "wal_keep_size": "64MB",
	"shared_buffers": "64MB", "autovacuum_naptime": "5s", "wal_sender_timeout": "10s",
	"tcp_user_timeout": "20s", "idle_in_transaction_session_timeout": "60s",
}

// startCluster starts both servers. The primary contains the migrated ledger, its roles and the producers' tables.
func startCluster(ctx context.Context, dir string, disk disk) (_ *cluster, err error) {
	c := &cluster{dir: dir, disk: disk}
	if c.clock, err = pgserver.NewClock(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if c.primary, err = pgserver.Start(ctx, c.config()); err != nil {
		return nil, err
	}
	c.primaryDir = c.nextDir()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := c.exec(ctx, "postgres", "create database "+database); err != nil {
		return nil, err
	}
	address := c.primary.URL(database)
	if err := migrations.Up(ctx, address); err != nil {
		return nil, err
	}
	if _, err := migrations.MakeRoles(ctx, address, rolePrefix); err != nil {
		return nil, err
	}
	if err := c.exec(ctx, database, schemaSQL); err != nil {
		return nil, err
	}
	return c, c.addStandby(ctx)
}

func (c *cluster) config() pgserver.Config {
	c.number++
	return pgserver.Config{Dir: c.nextDir(), NoSync: true, Settings: settings, Clock: c.clock}
}

func (c *cluster) nextDir() string { return filepath.Join(c.dir, fmt.Sprintf("postgres-%d", c.number)) }

// addStandby starts a standby of the primary, unless the binaries do not include client tools.
func (c *cluster) addStandby(ctx context.Context) (err error) {
	c.number++
	c.standbyDir = c.nextDir()
	if c.standby, err = c.primary.StandbyIn(ctx, c.standbyDir); errors.Is(err, fs.ErrNotExist) {
		c.standby = nil
		return nil
	}
	return err
}

// connect opens a connection to the primary as the owner of the ledger.
func (c *cluster) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(c.primary.URL(database))
	if err != nil {
		return nil, err
	}
	config.ConnectTimeout = 5 * time.Second
	config.RuntimeParams["application_name"] = "nemesis"
	return pgx.ConnectConfig(ctx, config)
}

// exec executes statements as the owner.
func (c *cluster) exec(ctx context.Context, database, sql string) error {
	conn, err := c.connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// await waits until a query returns true on the primary.
func (c *cluster) await(ctx context.Context, query string) error {
	for {
		ok, err := c.is(ctx, query)
		if ok || err != nil {
			return err
		}
		if err := loop.Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("still waiting for %s: %w", query, err)
		}
	}
}

func (c *cluster) is(ctx context.Context, query string) (ok bool, err error) {
	conn, err := c.connect(ctx, database)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return ok, conn.QueryRow(ctx, query).Scan(&ok)
}

// synchronize makes commits wait for the standby from now on. When it returns, the standby has replicated every
// acknowledged commit.
func (c *cluster) synchronize(ctx context.Context) error {
	for _, sql := range []string{"alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"} {
		if err := c.exec(ctx, database, sql); err != nil {
			return err
		}
	}
	if err := c.await(ctx, `select exists (select from pg_stat_replication where sync_state = 'sync')`); err != nil {
		return err
	}
	return c.catchUp(ctx)
}

// catchUp waits until the standby has replicated every commit up to now.
func (c *cluster) catchUp(ctx context.Context) error {
	conn, err := c.connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var lsn string
	if err := conn.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&lsn); err != nil {
		return err
	}
	return c.await(ctx, "select not exists (select from pg_stat_replication where flush_lsn < '"+lsn+"'::pg_lsn)")
}

// promote kills the primary and makes the standby the primary. The caller adds a new standby.
func (c *cluster) promote(ctx context.Context) error {
	if err := c.primary.Kill(); err != nil {
		return err
	}
	if err := c.standby.Promote(ctx); err != nil {
		return err
	}
	old, dir := c.primary, c.primaryDir
	c.primary, c.primaryDir, c.standby = c.standby, c.standbyDir, nil
	return errors.Join(old.Close(), os.RemoveAll(dir)) // the disk is small
}

// address returns host and port of the primary.
func (c *cluster) address() string {
	u, err := url.Parse(c.primary.URL(database))
	if err != nil {
		panic(err) // it was made from its parts
	}
	return u.Host
}

// login returns the address of the database for a login, through a link. Poolers in transaction mode need exec mode.
func login(role, address string, isPooled bool) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(migrations.RoleName(rolePrefix, role), password), Host: address,
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	if isPooled {
		u.RawQuery += "&default_query_exec_mode=exec"
	}
	return u.String()
}

func (c *cluster) close() error {
	var errs []error
	for _, server := range []*pgserver.Server{c.standby, c.primary} {
		if server != nil {
			errs = append(errs, server.Close())
		}
	}
	return errors.Join(errs...)
}
