// Package crashtest runs a PostgreSQL server whose crash undoes each commit that did not wait for the disk.
package crashtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Server is a server of one test, with synchronous_commit off.
type Server struct {
	*pgserver.Server
	t     testing.TB
	owner *pgxpool.Pool
}

// New starts a server with a migrated database. It is closed after the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, Server: ledgertest.Cluster(t, map[string]string{
		"synchronous_commit": "off",
		// The log is written for a commit that waits, or if a page of it is full: not by time, and no page of a table
		// fills it.
		"wal_writer_delay": "10s", "autovacuum": "off", "full_page_writes": "off",
	})}
	s.owner = s.Pool(ledgertest.Owner)
	return s
}

// Pool returns connections of a login with these roles.
func (s *Server) Pool(roles ...string) *pgxpool.Pool {
	s.t.Helper()
	pool, err := pgxpool.New(s.t.Context(), ledgertest.URLAs(s.t, s.URL(ledgertest.Database), roles...))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(pool.Close)
	return pool
}

// Flush writes the log to the disk, and leaves half a page of it free: less than that is lost if its commit does not
// wait.
func (s *Server) Flush() {
	s.t.Helper()
	const sql = `begin; set local synchronous_commit to on;
		select pg_logical_emit_message(true, '',
		         repeat('x', case when (pg_current_wal_insert_lsn() - '0/0') % 8192 > 4000 then 4000 else 1 end));
		commit`
	if _, err := s.owner.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		s.t.Fatal(err)
	}
}

// Crash kills the server, restarts it, and resets the connections of pools.
func (s *Server) Crash(pools ...*pgxpool.Pool) {
	s.t.Helper()
	if err := s.Kill(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.Restart(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	for _, pool := range append(pools, s.owner) {
		pool.Reset()
	}
}
