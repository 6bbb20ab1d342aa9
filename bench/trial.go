package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
)

// trial is one run of one contender, with its own database and broker.
type trial struct {
	config  config
	server  *databaseServer
	url     string // of the database
	db      *pgxpool.Pool
	tuning  string       // the setting that tune chose, or tries
	trying  bool         // whether tune tries the setting
	costs   bool         // whether the meter reads more than the WAL
	broker  *child       // nil: the contender needs no broker
	nc      *nats.Conn   // whose messages the meter counts; nil: none
	trips   atomic.Int64 // round trips of the pool
	figures []figure

	brokerDir string
	cleanups  []func() error
}

// figure is one result of a trial.
type figure struct {
	metric string
	value  float64
	unit   string
}

// rate is the metric of throughput. Tuning compares it, or p50 if there is no rate.
const (
	rate        = "rate"
	p50         = "p50"
	p99         = "p99"
	walPerTask  = "wal per task"
	deadPerTask = "dead tuples per task"
	cpuPerTask  = "CPU per task"
)

func (t *trial) add(metric string, value float64, unit string) {
	t.figures = append(t.figures, figure{metric, value, unit})
}

// size is config.size, or a fifth of it while tune tries a setting.
func (t *trial) size(full, quick int) int {
	n := t.config.size(full, quick)
	if t.trying {
		n /= 5
	}
	return max(1, n)
}

func (t *trial) duration() time.Duration {
	if t.trying {
		return t.config.duration() / 5
	}
	return t.config.duration()
}

// atEnd registers f, which close calls, last in first out.
func (t *trial) atEnd(f func() error) { t.cleanups = append(t.cleanups, f) }

// pool opens a pool of at most n connections to the trial's database.
func (t *trial) pool(ctx context.Context, n int) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(t.url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = int32(n)
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &countedConn{conn, &t.trips}, err
	}
	db, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	t.atEnd(func() error { db.Close(); return nil })
	return db, nil
}

// countedConn counts its writes. pgx writes once for a round trip, unless it is large.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// open creates the trial's database.
func (t *trial) open(ctx context.Context) (err error) {
	name, address, err := t.server.create(ctx)
	if err != nil {
		return err
	}
	t.url = address
	t.atEnd(func() error { return t.server.drop(ctx, name) })
	t.db, err = t.pool(ctx, 64)
	return err
}

// another returns a trial with its own database, which ends with t.
func (t *trial) another(ctx context.Context) (*trial, error) {
	other := &trial{config: t.config, server: t.server}
	t.atEnd(other.close)
	return other, other.open(ctx)
}

// close releases the resources of the trial, last in first out.
func (t *trial) close() error {
	var err error
	for _, f := range slices.Backward(t.cleanups) {
		err = errors.Join(err, f())
	}
	t.cleanups = nil
	return err
}
