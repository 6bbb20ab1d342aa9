package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

// actorSettings are those of relay, projector and worker in processes of their own.
type actorSettings struct {
	DatabaseURL string `json:"database_url"`
	NATSURL     string `json:"nats_url"`
	ExactlyOnce bool   `json:"exactly_once"` // the worker's handler
	Slots       int    `json:"slots"`        // the worker's
}

// count is what such a process tells again and again: messages published, or tasks succeeded.
type count struct {
	Count int64 `json:"count"`
}

// playing is what the three roles have in common.
func playing(ctx context.Context, raw json.RawMessage, connections int32, ready func(any), role func(s actorSettings, db *pgxpool.Pool, nc *nats.Conn, add func(int)) (func(context.Context) error, error)) error {
	var s actorSettings
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	c, err := pgxpool.ParseConfig(s.DatabaseURL)
	if err != nil {
		return err
	}
	c.MaxConns = connections
	db, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return err
	}
	defer db.Close()
	nc, err := outbox.Connect(s.NATSURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	var total atomic.Int64
	run, err := role(s, db, nc, func(n int) { total.Add(int64(n)) })
	if err != nil {
		return err
	}
	ready(count{})
	ctx, over := context.WithCancel(ctx) // also if it ends by itself, which is a failure
	stop := background(ctx, func(ctx context.Context) error {
		defer over()
		return run(ctx)
	})
	for told := int64(0); ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		if now := total.Load(); now != told {
			ready(count{now})
			told = now
		}
	}
	return stop()
}

func playRelay(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return playing(ctx, raw, 4, ready, func(_ actorSettings, db *pgxpool.Pool, nc *nats.Conn, add func(int)) (func(context.Context) error, error) {
		r, err := outbox.New(outbox.Config{DB: db, NATS: nc, Stream: streamSettings, Observer: &outbox.Observer{Published: add}})
		if err != nil {
			return nil, err
		}
		return r.Run, nil
	})
}

func playProjector(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return playing(ctx, raw, 4, ready, func(_ actorSettings, db *pgxpool.Pool, _ *nats.Conn, _ func(int)) (func(context.Context) error, error) {
		p, err := projector.New(projector.Config{DB: db})
		if err != nil {
			return nil, err
		}
		return p.Run, nil
	})
}

func playWorker(ctx context.Context, raw json.RawMessage, ready func(any)) error {
	return playing(ctx, raw, 64, ready, func(s actorSettings, db *pgxpool.Pool, nc *nats.Conn, add func(int)) (func(context.Context) error, error) {
		p, err := workers.New(workers.Config{DB: db, NATS: nc, Hooks: []any{successes(add)}})
		if err != nil {
			return nil, err
		}
		register := noopAtLeastOnce(s.Slots)
		if s.ExactlyOnce {
			register = insertExactlyOnce(s.Slots)
		}
		return p.Run, register(p)
	})
}

// company is a ledger whose relay, projector and workers are processes.
type company struct {
	t    *trial
	nats string
}

// newCompany migrates and starts a broker.
func newCompany(ctx context.Context, t *trial) (*company, error) {
	if err := migrate(ctx, t); err != nil {
		return nil, err
	}
	address, err := broker(ctx, t, false)
	return &company{t, address}, err
}

// cast starts a process; the caller ends it, or else the trial's end does.
func (c *company) cast(ctx context.Context, role string, exactlyOnce bool, slots int) (*actor, error) {
	var first count
	a, err := cast(ctx, role, actorSettings{DatabaseURL: c.t.url, NATSURL: c.nats, ExactlyOnce: exactlyOnce, Slots: slots}, &first)
	if err != nil {
		return nil, err
	}
	c.t.atEnd(a.end)
	return a, nil
}

// counted waits until processes have counted n together.
func counted(ctx context.Context, n int, actors ...*actor) error {
	return await(ctx, func() (bool, error) {
		var sum int64
		for _, a := range actors {
			if a.ended() {
				return false, fmt.Errorf("the process of the %s has ended", a.role)
			}
			sum += a.count.Load()
		}
		return sum >= int64(n), nil
	})
}

// relayed waits until nothing is left to relay.
func (c *company) relayed(ctx context.Context) error {
	return await(ctx, func() (empty bool, err error) {
		err = c.t.db.QueryRow(ctx, statement("relayed")).Scan(&empty)
		return empty, err
	})
}

// audited waits until relay and projector have audited what they delivered: until then they work for
// what was, beside what is. Each time it asks it enqueues a task, so that they say how far they are.
func (c *company) audited(ctx context.Context) error {
	for i := 0; ; i++ {
		other := ledger.Key{Kind: "bench.history", BizID: ledger.BizID(fmt.Sprintf("poke-%d", i))}
		if _, err := ledger.Enqueue(ctx, c.t.db, other, args, nil); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		var left int
		if err := c.t.db.QueryRow(ctx, statement("unaudited")).Scan(&left); err != nil {
			return err
		}
		if left < 1000 {
			return nil
		}
	}
}

// projected waits until nothing is left to project.
func (c *company) projected(ctx context.Context) error {
	return await(ctx, func() (bool, error) {
		lag, err := projector.ReadLag(ctx, c.t.db)
		return lag.Events == 0, err
	})
}

// memory is the most that a process has had resident, in MB; 0 where that cannot be told.
func (a *actor) memory() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.command.Process.Pid))
	return float64(kilobytes(string(text), "VmHWM:")) / 1024
}

// addMemory adds a process's memory.
func addMemory(t *trial, a *actor) {
	if mb := a.memory(); mb > 0 {
		t.add(a.role+" memory", mb, "MB")
	}
}
