package workers_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// freezer lets a pool's connections through to the database until it is frozen: then they stay open,
// and nothing comes or goes.
type freezer struct{ frozen, thawed chan struct{} }

// through returns a pool like db whose connections can be frozen.
func (f freezer) through(b *bundle, db *pgxpool.Pool) *pgxpool.Pool {
	b.T.Helper()
	config := db.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		server, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		client, ours := net.Pipe()
		go f.pump(ours, server)
		go f.pump(server, ours)
		return client, nil
	}
	pool := try(pgxpool.NewWithConfig(b.Context(), config))(b.T)
	b.T.Cleanup(pool.Close)
	return pool
}

func (f freezer) pump(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-f.frozen:
			<-f.thawed
		default:
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A scheduler and a reconciler that are told to stop do, although the database has fallen silent in the
// middle of their work.
func TestStopWhileTheDatabaseIsFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.Work(workers.Config{}, exactly(insertEffect, nil)) // whose consumers are what a reconciler looks at
	b.Await("the consumers", func() bool {
		for _, c := range stream.Consumers(order.Name(), ledger.AllShards) {
			if _, err := b.JS.Consumer(b.Context(), stream.Name, c.Durable); err != nil {
				return false
			}
		}
		return true
	})
	w.Stop()
	f := freezer{make(chan struct{}), make(chan struct{})}
	db := f.through(b, b.DB)
	for i := range 100 {
		b.Later(fmt.Sprint(i), ledger.EnqueueOptions{RunIn: time.Microsecond})
	}
	b.Later("keeps it busy", ledger.EnqueueOptions{RunIn: time.Hour})
	fired := make(chan struct{})
	var once sync.Once
	s := try(workers.NewScheduler(workers.SchedulerConfig{DB: db, Fired: func(workers.Firing) { once.Do(func() { close(fired) }) }}))(t)
	r := try(workers.NewReconciler(workers.ReconcilerConfig{DB: db, NATS: b.Connect(), Every: time.Millisecond}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 2)
	for _, run := range []func(context.Context) error{s.Run, r.Run} {
		go func() { ended <- run(ctx) }()
	}
	<-fired
	close(f.frozen)
	defer close(f.thawed)
	b.Await("both to wait for an answer", func() bool { // also to that they are there
		stat := db.Stat()
		return stat.AcquiredConns()+stat.ConstructingConns() >= 2
	})
	cancel()
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("it does not stop")
		}
	}
}
