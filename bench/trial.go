package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// trial is one turn of one contender, with a database and a broker to itself.
type trial struct {
	config  config
	server  *databaseServer
	url     string // of the database
	db      *pgxpool.Pool
	tuning  string // what tuning chose, or tries
	trying  bool
	costs   bool   // meter more than the WAL
	broker  *actor // nil: none
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

// rate is the metric of throughput; tuning looks at it, else at p50.
const (
	rate       = "rate"
	p50        = "p50"
	walPerTask = "wal per task"
)

func (t *trial) add(metric string, value float64, unit string) {
	t.figures = append(t.figures, figure{metric, value, unit})
}

// size is a number of something in this trial.
func (t *trial) size(full, quick int) int {
	n := t.config.size(full, quick)
	if t.trying {
		n /= 5
	}
	return max(1, n)
}

func (t *trial) lasts() time.Duration {
	if t.trying {
		return t.config.lasts() / 5
	}
	return t.config.lasts()
}

// atEnd has f called when the trial has ended, last in first out.
func (t *trial) atEnd(f func() error) { t.cleanups = append(t.cleanups, f) }

// pool opens connections to the trial's database, at most n.
func (t *trial) pool(ctx context.Context, n int) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(t.url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = int32(n)
	db, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	t.atEnd(func() error { db.Close(); return nil })
	return db, nil
}

// raise makes the trial's database.
func (t *trial) raise(ctx context.Context) (err error) {
	name, address, err := t.server.create(ctx)
	if err != nil {
		return err
	}
	t.url = address
	t.atEnd(func() error { return t.server.drop(ctx, name) })
	t.db, err = t.pool(ctx, 64)
	return err
}

// another returns a trial with a database of its own, which ends with t.
func (t *trial) another(ctx context.Context) (*trial, error) {
	other := &trial{config: t.config, server: t.server}
	t.atEnd(other.strike)
	return other, other.raise(ctx)
}

// strike ends what the trial has started, last in first out.
func (t *trial) strike() error {
	var err error
	for _, f := range slices.Backward(t.cleanups) {
		err = errors.Join(err, f())
	}
	t.cleanups = nil
	return err
}
