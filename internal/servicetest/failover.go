package servicetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Pair is a primary with an asynchronous standby.
type Pair struct {
	t                testing.TB
	primary, standby *pgserver.Server
	// DB connects to the current primary, with the roles of [Pool].
	DB *pgxpool.Pool
}

// NewPair starts the servers. It skips the test if PostgreSQL's binaries do not include client tools.
func NewPair(t testing.TB) *Pair {
	t.Helper()
	p := &Pair{t: t, primary: ledgertest.Cluster(t, nil)}
	standby, err := p.primary.Standby(t.Context())
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err)
	}
	p.standby = Try(standby, err)(t)
	t.Cleanup(func() { _ = standby.Close() })
	hosts := address(p.primary) + "," + address(p.standby)
	url := strings.Replace(p.primary.URL(ledgertest.Database), address(p.primary), hosts, 1)
	both := Try(pgxpool.New(t.Context(), url+"&target_session_attrs=read-write"))(t)
	t.Cleanup(both.Close)
	p.DB = ledgertest.As(t, both, ledgertest.App, "relay", "operator")
	return p
}

// address returns host and port of a server.
func address(s *pgserver.Server) string {
	_, rest, _ := strings.Cut(s.URL(ledgertest.Database), "@")
	hostPort, _, _ := strings.Cut(rest, "/")
	return hostPort
}

// Separate ends the replication once the standby has caught up: later commits are lost with the primary.
func (p *Pair) Separate() {
	p.t.Helper()
	ctx := p.t.Context()
	there := Try(pgxpool.New(ctx, p.standby.URL(ledgertest.Database)))(p.t)
	defer there.Close()
	b := &Bundle{T: p.t, DB: there}
	lsn := One[string](&Bundle{T: p.t, DB: p.DB}, "select pg_current_wal_insert_lsn()::text")
	b.Await("the standby has everything", func() bool {
		return One[bool](b, "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", lsn)
	})
	for _, sql := range []string{"alter system set primary_conninfo = ''", "select pg_reload_conf()"} {
		if _, err := there.Exec(ctx, sql); err != nil {
			p.t.Fatal(err)
		}
	}
	b.Await("the replication has ended", func() bool {
		return One[bool](b, "select not exists (select from pg_stat_wal_receiver)")
	})
}

// FailOver kills the primary and promotes the standby. It returns when DB is connected to the new primary.
func (p *Pair) FailOver() {
	p.t.Helper()
	if err := p.primary.Kill(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.standby.Promote(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	(&Bundle{T: p.t}).Await("the pool is connected to the new primary", func() bool {
		_, err := p.DB.Exec(p.t.Context(), "select")
		return err == nil
	})
}
