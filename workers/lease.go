package workers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/installation.sql
var installationSQL string

// renewLease says that this worker is alive for another AckWait. Only then may others leave it
// what it has started; nothing that must be correct rests on it.
func (p *Pool) renewLease(ctx context.Context, db ledger.DB) error {
	kinds := p.registered()
	d := leaseDetail{Kinds: kindNames(kinds), Guarantees: guaranteesOf(kinds), Shards: p.config.Shards, ShardGroups: p.config.ShardGroups}
	if d.ShardGroups > 0 {
		d.Shards = 0 // those it has are in the table shard_owner
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	return lease.Renew(ctx, db, lease.Worker(p.id), p.id, p.config.AckWait, d)
}

// takeLease takes the lease, unless a worker that has one does not go together with this one.
func (p *Pool) takeLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	return pgx.BeginTxFunc(ctx, p.config.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := lease.Lock(ctx, tx); err != nil {
			return err
		}
		if err := p.renewLease(ctx, tx); err != nil {
			return err
		}
		return p.checkGuarantees(ctx, tx)
	})
}

// firstLease takes the lease, however long the database is away, and finds out whether this
// worker can work at all, beside the others, and for which ledger. It returns nil with ctx done.
func (p *Pool) firstLease(ctx context.Context) error {
	delay := loop.Backoff{Max: maxPause, Exact: true}
	for {
		err := p.takeLease(ctx)
		if err == nil {
			err = lease.Sweep(ctx, p.config.DB)
		}
		if err == nil {
			err = p.config.DB.QueryRow(ctx, installationSQL).Scan(&p.layout.installation)
		}
		var differs *GuaranteeError
		switch {
		case errors.As(err, &differs):
			return fmt.Errorf("workers: %w", err)
		case err == nil || ctx.Err() != nil:
			return nil
		case pgerr.Permanent(err) != nil:
			return fmt.Errorf("workers: %w", pgerr.Permanent(err))
		}
		again := delay.Next()
		p.config.Logger.WarnContext(ctx, "cannot begin", "error", err, "again_in", again)
		_ = loop.Sleep(ctx, again)
	}
}

// keepLease renews the lease until quit is done, and looks whether what runs is still ours. If
// the database is away the lease goes stale, and the next renewal revives it.
func (p *Pool) keepLease(quit context.Context) {
	t := time.NewTicker(p.config.AckWait / 3)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			// Not given up half-way: what the server does then would come after the end of the lease.
			if err := p.renewLease(p.runner.Lasting(), p.config.DB); err != nil && quit.Err() == nil {
				p.config.Logger.WarnContext(quit, "cannot renew the lease", "error", err)
				continue
			}
			for _, k := range p.registered() {
				k.FenceMoved(k.Tasks.Begun())
			}
		case <-quit.Done():
			return
		}
	}
}

// endLease removes the lease of a worker that has nothing in flight.
func (p *Pool) endLease() {
	ctx, cancel := context.WithTimeout(p.runner.Lasting(), releaseTimeout)
	defer cancel()
	if err := lease.End(ctx, p.config.DB, lease.Worker(p.id)); err != nil {
		p.config.Logger.WarnContext(ctx, "cannot end the lease; it expires by itself", "error", err)
	}
}

// endFirstLease removes the lease of a worker that was stopped while it took it. It waits for a transaction
// of takeLease that was cut short: the server may still commit it.
func (p *Pool) endFirstLease() {
	ctx, cancel := context.WithTimeout(p.runner.Lasting(), releaseTimeout)
	defer cancel()
	err := pgx.BeginTxFunc(ctx, p.config.DB, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := lease.Lock(ctx, tx); err != nil {
			return err
		}
		return lease.End(ctx, tx, lease.Worker(p.id))
	})
	if err != nil {
		p.config.Logger.WarnContext(ctx, "cannot end the lease; it expires by itself", "error", err)
	}
}
