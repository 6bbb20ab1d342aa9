package health_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
)

// patience is the timeout of conditions that normally hold within milliseconds.
const patience = time.Minute

// bundle is a test with a database of its own.
type bundle struct {
	t  testing.TB
	db *pgxpool.Pool
}

func setup(t testing.TB) *bundle {
	t.Helper()
	return &bundle{t: t, db: ledgertest.Pool(t, ledgertest.App, "relay", "operator")}
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) read(c health.Config) health.Report {
	b.t.Helper()
	if c.DB == nil {
		c.DB = ledgertest.As(b.t, b.db, "reader")
	}
	r, err := health.Read(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// hold executes a statement as the owner, in a transaction that stays open until the end of the test and is older than
// a millisecond.
func (b *bundle) hold(sql string) {
	b.t.Helper()
	tx, err := ledgertest.As(b.t, b.db, ledgertest.Owner).Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(b.t.Context(), sql); err != nil {
		b.t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
}

// takeLease adds the leases of a relay and a dispatcher that work.
func (b *bundle) takeLease() {
	b.t.Helper()
	b.exec(`
		insert into taskledger.lease (name, holder, alive_until)
		values ('relay', 'relay-1', clock_timestamp() + interval '1 hour')`)
	b.exec(`
		insert into taskledger.lease (name, holder, alive_until, detail)
		values ('dispatcher', 'dispatcher-1', clock_timestamp() + interval '1 hour', '{"epoch": 1, "key": ""}')`)
}

// project runs a projector until all events are projected.
func (b *bundle) project() {
	b.t.Helper()
	p, err := projector.New(projector.Config{DB: b.db})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		lag, err := projection.ReadLag(b.t.Context(), b.db)
		if err != nil {
			b.t.Fatal(err)
		}
		if lag.Events == 0 {
			break
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waited %s for the projection: %+v", patience, lag)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		b.t.Fatal(err)
	}
}

// cluster starts three NATS servers as a cluster, and returns a connection to the first one; stop ends the last one.
func (b *bundle) cluster() (js jetstream.JetStream, stop func()) {
	b.t.Helper()
	var peers []string
	for range 3 {
		port, err := reserve.Port()
		if err != nil {
			b.t.Fatal(err)
		}
		peers = append(peers, fmt.Sprintf("127.0.0.1:%d", port))
	}
	var servers []*natsserver.Server
	for i, self := range peers {
		_, port, _ := strings.Cut(self, ":")
		n, _ := strconv.Atoi(port)
		server, err := natsserver.Start(natsserver.Config{Dir: b.t.TempDir(), Cluster: &natsserver.Cluster{
			Name: "three", Self: fmt.Sprintf("node-%d", i), Host: "127.0.0.1", Port: n, Peers: peers,
		}})
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = server.Close() })
		servers = append(servers, server)
	}
	nc, err := nats.Connect(servers[0].URL())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err = jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	b.await("a leader of the cluster", func() bool {
		_, err := js.CreateStream(b.t.Context(), jetstream.StreamConfig{Name: "probe", Replicas: 3})
		return err == nil
	})
	return js, servers[2].Stop
}

// jetStream starts a NATS server.
func (b *bundle) jetStream(options ...nats.Option) jetstream.JetStream {
	b.t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: b.t.TempDir()})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			b.t.Error(err)
		}
	})
	nc, err := nats.Connect(server.URL(), options...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

// createStream creates the stream of the ledger.
func (b *bundle) createStream(js jetstream.JetStream, c outbox.StreamConfig) {
	b.t.Helper()
	var installation string
	const sql = "select value from taskledger.setting where name = 'installation'"
	if err := b.db.QueryRow(b.t.Context(), sql).Scan(&installation); err != nil {
		b.t.Fatal(err)
	}
	if _, err := stream.Ensure(b.t.Context(), js, c, installation); err != nil {
		b.t.Fatal(err)
	}
}

// await waits until a condition holds.
func (b *bundle) await(what string, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited %s for %s", patience, what)
		}
	}
}
