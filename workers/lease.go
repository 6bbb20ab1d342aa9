package workers

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/kinds_admitted.sql
var kindsAdmittedSQL string

// maxRetryDelay is the longest delay before a refused operation of the database or NATS is retried.
const maxRetryDelay = 2 * time.Second

// renewLease extends the lease of this worker by LeaseTTL. While it lives, other workers do not take over its tasks.
// Correctness does not depend on it. A login that may not work on one of the kinds gets no lease: its worker would
// count as a worker of that kind.
func (p *Pool) renewLease(ctx context.Context, db ledger.DB) error {
	p.leaseMu.Lock()
	defer p.leaseMu.Unlock()
	kinds := p.registered()
	if len(kinds) == 0 { // of a gateway: the lease ends
		return nil
	}
	d := leaseDetail{
		Kinds: kindNames(kinds), Guarantees: guaranteesOf(kinds), Shards: p.config.Shards,
		Repeating: p.repeating(),
	}
	var err1, err2 error
	d.Load, err1 = json.Marshal(p.loads.read(kinds, time.Now()))
	d.Version, err2 = json.Marshal(programVersion())
	if names := p.remoteNames(); len(names) > 0 {
		d.Names, _ = json.Marshal(names) // texts
	}
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	p.asker.describe(&d)
	d.Records = p.recordsStarts()
	for _, k := range kinds { // even if the answer is lost
		k.claims.list(slices.Contains(d.Records, string(k.Name)))
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.LeaseTTL)
	defer cancel()
	now := time.Now()
	if _, err := db.Exec(ctx, kindsAdmittedSQL, pgarray.Of(d.Kinds...)); err != nil {
		return pgerr.Explain("check kinds", err)
	}
	err := lease.Renew(ctx, db, lease.Worker(p.id), p.id, p.config.LeaseTTL, d)
	if err == nil {
		p.asker.noteRenewal(now)
		for _, k := range kinds {
			k.claims.unlist(slices.Contains(d.Records, string(k.Name)))
		}
	}
	return err
}

// takeLease takes the lease, unless a live worker has another guarantee for one of the kinds.
func (p *Pool) takeLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.LeaseTTL)
	defer cancel()
	return pgx.BeginTxFunc(ctx, p.config.DB, pgquery.Brief, func(tx pgx.Tx) error {
		if err := lease.Lock(ctx, tx, kindNames(p.registered())); err != nil {
			return err
		}
		if p.asker != nil {
			v, err := p.readView(ctx, tx)
			if err != nil {
				return err
			}
			p.note(ctx, v)
		}
		if err := p.renewLease(ctx, tx); err != nil {
			return err
		}
		return p.checkGuarantees(ctx, tx)
	})
}

// firstLease takes the lease, retrying while the database is unavailable. It returns an error if this worker cannot run
// at all, and nil if ctx is done.
func (p *Pool) firstLease(ctx context.Context) error {
	delay := loop.Backoff{Max: maxRetryDelay, Exact: true}
	for {
		err := p.takeLease(ctx)
		if err == nil {
			err = lease.Sweep(ctx, p.config.DB)
		}
		var mismatch *GuaranteeError
		switch {
		case errors.As(err, &mismatch):
			return fmt.Errorf("workers: %w", err)
		case err == nil || ctx.Err() != nil:
			return nil
		case pgerr.Permanent(err) != nil:
			return fmt.Errorf("workers: %w", p.withCure(pgerr.Permanent(err)))
		}
		p.runner.LeaveStandby(err)
		retryIn := delay.Next()
		p.config.Logger.WarnContext(ctx, "cannot begin", "error", err, "retry_in", retryIn)
		_ = loop.Sleep(ctx, retryIn)
	}
}

// withCure adds to an error of a missing right how to grant it.
func (p *Pool) withCure(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != pgerr.InsufficientPrivilege {
		return err
	}
	if pg.Hint != "" { // of taskledger_internal.check_kinds
		return fmt.Errorf("%w: %s", err, pg.Hint)
	}
	return fmt.Errorf("%w: grant the login %s the role worker, or a role of workers that is limited to this "+
		"program's kinds: taskledger migrate roles creates both", err, p.config.DB.Config().ConnConfig.User)
}

// keepLease renews the lease until quit is done, and fences attempts whose task has moved on. While the database is
// unavailable the lease may expire; the next renewal revives it.
func (p *Pool) keepLease(quit context.Context) {
	t := time.NewTicker(p.config.LeaseTTL / 3)
	defer t.Stop()
	look := time.NewTicker(min(p.config.LeaseTTL/3, time.Second))
	defer look.Stop()
	var written []repeatedTask
	var records, names []string
	for {
		select {
		case <-look.C: // an operator should not wait for the next renewal
			now, recorded, named := p.repeating(), p.recordsStarts(), p.remoteNames()
			isSame := isSameTasks(now, written) && slices.Equal(recorded, records) && slices.Equal(named, names)
			if !isSame && p.renewLease(p.runner.Lasting(), p.config.DB) == nil {
				written, records, names = now, recorded, named
			}
		case <-t.C:
			// Without quit: a renewal that is cut short might be committed by the server after the lease was released.
			if err := p.renewLease(p.runner.Lasting(), p.config.DB); err != nil && quit.Err() == nil {
				p.runner.LeaveStandby(err)
				p.config.Logger.WarnContext(quit, "cannot renew the lease", "error", p.withCure(err))
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

// releaseLease removes the lease of a worker that has nothing in flight.
func (p *Pool) releaseLease() {
	ctx, cancel := context.WithTimeout(p.runner.Lasting(), releaseTimeout)
	defer cancel()
	if err := lease.Release(ctx, p.config.DB, lease.Worker(p.id)); err != nil {
		p.config.Logger.WarnContext(ctx, "cannot release the lease", "expires_in", p.config.LeaseTTL, "error", err)
	}
}

// releaseFirstLease removes the lease of a worker that was stopped while it took it. It waits for a transaction of
// takeLease that was cut short, because the server may still commit it.
func (p *Pool) releaseFirstLease() {
	ctx, cancel := context.WithTimeout(p.runner.Lasting(), releaseTimeout)
	defer cancel()
	err := pgx.BeginTxFunc(ctx, p.config.DB, pgquery.Brief, func(tx pgx.Tx) error {
		if err := lease.Lock(ctx, tx, kindNames(p.registered())); err != nil {
			return err
		}
		return lease.Release(ctx, tx, lease.Worker(p.id))
	})
	if err != nil {
		p.config.Logger.WarnContext(ctx, "cannot release the lease", "expires_in", p.config.LeaseTTL, "error", err)
	}
}

// kindNames returns the names of kinds, sorted.
func kindNames(kinds []*kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k.Name)
	}
	slices.Sort(names)
	return names
}

// checkGuarantees returns a [*GuaranteeError] for each kind that a live worker runs with another guarantee.
func (p *Pool) checkGuarantees(ctx context.Context, db ledger.DB) error {
	all, err := ReadWorkers(ctx, db, "", lists.All)
	if err != nil {
		return err
	}
	mine := make(map[ledger.Kind]*kind)
	for _, k := range p.registered() {
		mine[k.Name] = k
	}
	var faults []error
	for _, w := range all {
		if !w.Alive || w.ID == p.id {
			continue
		}
		for _, other := range w.Kinds {
			if k := mine[other.Kind]; k != nil && other.Guarantee != k.guarantee &&
				other.Guarantee != k.config.Replaces {
				faults = append(faults, &GuaranteeError{
					Kind: k.Name, Wanted: k.guarantee, Found: other.Guarantee, Worker: w.ID,
				})
			}
		}
	}
	return errors.Join(faults...)
}

// guaranteesOf returns the guarantees of kinds.
func guaranteesOf(kinds []*kind) guarantees {
	g := make(guarantees)
	for _, k := range kinds {
		if k.guarantee != ExactlyOnce {
			g[k.guarantee] = append(g[k.guarantee], string(k.Name))
		}
	}
	return g
}
