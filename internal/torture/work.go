package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// leaseTTL is short, so that a paused worker loses its tasks within a run.
const leaseTTL = 3 * time.Second

// job is the args of every task.
type job struct {
	Nonce     string `json:"nonce"`                // names these args; effects have it
	Millis    int    `json:"millis,omitempty"`     // how long the handler takes
	FailFirst bool   `json:"fail_first,omitempty"` // the first attempt fails
	Follow    bool   `json:"follow,omitempty"`     // the handler enqueues a task of kind follow in its transaction
}

// The kinds of tasks, one for each guarantee.
var (
	once    = ledger.MustKind[job]("torture.once")    // exactly one effect, in the database
	follow  = ledger.MustKind[job]("torture.follow")  // the same, enqueued by handlers of once
	outside = ledger.MustKind[job]("torture.outside") // at least one effect, in the history
	never   = ledger.MustKind[job]("torture.never")   // at most one effect, in the history
	again   = ledger.MustKind[job]("torture.again")   // few tasks with many runs, each with exactly one effect
)

// work is the program of a worker.
func work(ctx context.Context, p *part) error {
	db, err := p.pool(ctx, p.Database, 16)
	if err != nil {
		return err
	}
	defer db.Close()
	nc, err := outbox.Connect(p.NATS[natsconfig.Worker])
	if err != nil {
		return err
	}
	defer nc.Close()
	p.keepRunning(ctx, "worker", func() (runner, error) {
		pool, err := workers.New(workers.Config{
			DB: db, NATS: nc, Name: p.Name, LeaseTTL: leaseTTL, StopTimeout: 5 * time.Second, Logger: p.log,
			Hooks: []workers.Hook{{StateChanged: p.noteSuccess}},
		})
		if err != nil {
			return nil, err
		}
		kind := &workers.KindConfig{
			Slots:   overloadSlots,
			Retry:   ledger.RetryPolicy{Ladder: []time.Duration{200 * time.Millisecond}, Attempts: 25},
			MaxLost: 50,
		}
		neverTwice := *kind
		neverTwice.Guarantee = workers.AtMostOnce
		return pool, errors.Join(
			pool.Register(workers.Handle(once, p.write, kind)),
			pool.Register(workers.Handle(follow, p.write, kind)),
			pool.Register(workers.Handle(again, p.write, kind)),
			pool.Register(workers.Handle(outside, p.act, kind)),
			pool.Register(workers.Handle(never, p.act, &neverTwice)),
		)
	})
	return nil
}

var errFirst = errors.New("the first attempt fails")

// write is the handler of kinds with exactly one effect.
func (p *part) write(ctx context.Context, tx pgx.Tx, j *workers.Job, args job) error {
	const insert = `insert into torture.effect (kind, biz_id, nonce, worker) values ($1, $2, $3, $4)`
	if _, err := tx.Exec(ctx, insert, string(j.Kind), string(j.BizID), args.Nonce, p.Name); err != nil {
		return err
	}
	if args.Follow {
		if _, err := follow.Enqueue(ctx, tx, j.BizID, job{Nonce: args.Nonce}, nil); err != nil {
			return err
		}
	}
	// It does not end with ctx: a worker that was paused goes on where it was.
	time.Sleep(time.Duration(args.Millis) * time.Millisecond)
	if args.FailFirst && j.Attempt == 1 {
		return errFirst
	}
	return nil
}

// act is the handler of kinds whose effect is outside of the database.
func (p *part) act(ctx context.Context, j *workers.Job, args job) error {
	p.history.add(entry{Op: opRan, Kind: j.Kind, BizID: j.BizID, Nonce: args.Nonce})
	return loop.Sleep(ctx, time.Duration(args.Millis)*time.Millisecond)
}

// noteSuccess records a success.
func (p *part) noteSuccess(_ context.Context, e ledger.Event) {
	if e.Type == ledger.EventSucceeded {
		p.history.add(entry{Op: opDone, Kind: e.Kind, BizID: e.BizID})
	}
}
