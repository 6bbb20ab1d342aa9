package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
)

// threads is the number of transactions that a producer has at a time.
const threads = 6

// lines is the number of order keys.
const lines = 15

// producer enqueues tasks, each in a transaction with a business row.
type producer struct {
	*part
	db       *pgxpool.Pool
	operator *operator.Operator
	put      enqueueFunc
}

// produce is the program of a producer.
func produce(ctx context.Context, p *part) error {
	db, err := p.pool(ctx, p.Database, threads)
	if err != nil {
		return err
	}
	defer db.Close()
	operators, err := p.pool(ctx, p.Operator, 1)
	if err != nil {
		return err
	}
	defer operators.Close()
	o := operator.New(operators)
	put := enqueueOnly
	if p.CallerRuns {
		if put, err = p.enqueueOrRun(); err != nil {
			return err
		}
	}
	producer := &producer{p, db, o, put}
	var group sync.WaitGroup
	for thread := range threads {
		random := rand.New(rand.NewPCG(p.Seed, uint64(p.Run*threads+thread)))
		group.Go(func() { producer.run(ctx, thread, random) })
	}
	group.Wait()
	return nil
}

// run enqueues tasks one after the other.
func (p *producer) run(ctx context.Context, thread int, random *rand.Rand) {
	for i := 0; ; i++ {
		pause := time.Duration(float64(threads*time.Second) / float64(p.Rate) * 2 * random.Float64())
		if loop.Sleep(ctx, pause) != nil {
			return
		}
		id := ledger.BizID(fmt.Sprintf("%s.%d.%d.%d", p.Name, p.Run, thread, i))
		if !p.Overload && random.IntN(100) < 8 {
			p.enqueueAgain(ctx, string(id), random)
			continue
		}
		p.enqueue(ctx, p.order(id, random))
	}
}

// order is a transaction of a producer.
type order struct {
	kind ledger.TypedKind[job]
	id   ledger.BizID
	args job

	options      *ledger.EnqueueOptions
	open         time.Duration // how long the transaction stays open after the enqueue
	isRolledBack bool
	isRepeated   bool
	isCancelled  bool
}

// order draws a transaction.
func (p *producer) order(id ledger.BizID, random *rand.Rand) order {
	chance := func(percent int) bool { return random.IntN(100) < percent }
	o := order{kind: once, id: id, args: job{Nonce: "nonce of " + string(id), Millis: random.IntN(20)}}
	switch n := random.IntN(100); {
	case p.Overload:
		o.args.Millis = overloadMillis
		return o
	case n < 15:
		o.kind = outside
	case n < 20:
		o.kind = never
	default:
		o.args.Follow, o.args.FailFirst = chance(20), chance(8)
	}
	if chance(4) {
		o.args.Millis = 300 + random.IntN(2500)
	}
	if chance(8) {
		o.options = &ledger.EnqueueOptions{RunIn: time.Duration(200+random.IntN(1500)) * time.Millisecond}
	}
	if chance(25) {
		line := fmt.Sprint("line-", random.IntN(lines))
		if o.options == nil {
			o.options = &ledger.EnqueueOptions{}
		}
		o.options.OrderKey, o.options.PassIfDead = line, true
	}
	if chance(10) {
		o.open = time.Duration(50+random.IntN(800)) * time.Millisecond
	}
	if chance(2) {
		o.id = "\x1b" + o.id // refused
	}
	o.isRolledBack, o.isRepeated, o.isCancelled = chance(8), chance(5), chance(3)
	return o
}

// enqueue executes a transaction, and repeats it until its outcome is known.
func (p *producer) enqueue(ctx context.Context, o order) {
	add := func(op op, err error) {
		e := entry{Op: op, Kind: o.kind.Name(), BizID: o.id, Nonce: o.args.Nonce}
		if err != nil {
			e.Err = err.Error()
		}
		p.history.add(e)
	}
	add(opBegun, nil)
	for {
		op, err := p.transact(ctx, o)
		if op != opBegun {
			add(op, err)
		}
		if op == opCommitted || op == opRolledBack || op == opRefused {
			break
		}
		if loop.Sleep(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
	if o.isRepeated && !o.isRolledBack {
		_, _ = p.transact(ctx, o) // the task exists, whatever this returns
	}
	if o.isCancelled {
		_, _ = p.operator.Cancel(ctx, o.kind.Key(o.id), operator.Audit{Reason: "drawn by the producer"})
	}
}

// reruns is the number of tasks of kind again.
const reruns = 12

// enqueueAgain enqueues the next run of a task, or replaces its args, once. The task may be running.
func (p *producer) enqueueAgain(ctx context.Context, nonce string, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	id := ledger.BizID(fmt.Sprint("again-", random.IntN(reruns)))
	args := job{Nonce: nonce, Millis: random.IntN(200), FailFirst: random.IntN(100) < 8}
	o := &ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	if random.IntN(2) == 0 {
		o.IfExists, o.RunIn = ledger.IfExistsReplace, time.Duration(random.IntN(500))*time.Millisecond
	}
	tx, err := p.db.Begin(ctx)
	if err != nil {
		return
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	const insert = `insert into torture.placed (kind, biz_id, nonce) values ($1, $2, $3) on conflict do nothing`
	if _, err := tx.Exec(ctx, insert, string(again.Name()), string(id), nonce); err != nil {
		return
	}
	answer, err := again.Enqueue(ctx, tx, id, args, o)
	if err != nil || random.IntN(100) < 8 || tx.Commit(ctx) != nil || !answer.New {
		return // other args while it is unfinished, rolled back, or no answer
	}
	p.history.add(entry{Op: opRun, Kind: again.Name(), BizID: id, Nonce: nonce})
}

// transact executes a transaction once. It returns opBegun if it was not committed and may be tried again.
func (p *producer) transact(ctx context.Context, o order) (op, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tx, err := p.db.Begin(ctx)
	if err != nil {
		return opBegun, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	const insert = `insert into torture.placed (kind, biz_id, nonce) values ($1, $2, $3) on conflict do nothing`
	if _, err := tx.Exec(ctx, insert, string(o.kind.Name()), string(o.id), o.args.Nonce); err != nil {
		return opBegun, err
	}
	var invalid *ledger.InvalidError
	var overload *ledger.OverloadError
	err = p.put(ctx, tx, o)
	switch {
	case errors.As(err, &invalid), errors.As(err, &overload):
		return opRefused, err
	case err != nil:
		return opBegun, err
	case loop.Sleep(ctx, o.open) != nil:
		return opBegun, ctx.Err()
	case o.isRolledBack:
		return opRolledBack, tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		return opUnknown, err
	}
	return opCommitted, nil
}
