package workers

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"
)

var (
	//go:embed sql/lease_renew.sql
	leaseRenewSQL string
	//go:embed sql/lease_end.sql
	leaseEndSQL string
	//go:embed sql/lease_sweep.sql
	leaseSweepSQL string
	//go:embed sql/installation.sql
	installationSQL string
)

func (p *Pool) leaseName() string { return "worker/" + p.id }

// renewLease says that this worker is alive for another AckWait. Only then may others leave it
// what it has started; nothing that must be correct rests on it.
func (p *Pool) renewLease(ctx context.Context) error {
	d := leaseDetail{Kinds: kindNames(p.registered()), Shards: p.config.Shards, ShardGroups: p.config.ShardGroups}
	if d.ShardGroups > 0 {
		d.Shards = 0 // those it has are in the table shard_owner
	}
	detail, err := json.Marshal(d)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	if _, err := p.config.DB.Exec(ctx, leaseRenewSQL, p.leaseName(), p.id, p.config.AckWait.Milliseconds(), string(detail)); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}

// firstLease takes the lease, however long the database is away, and finds out whether this
// worker can work at all, and for which ledger. It returns nil with ctx done.
func (p *Pool) firstLease(ctx context.Context) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := p.renewLease(ctx)
		if err == nil {
			_, err = p.config.DB.Exec(ctx, leaseSweepSQL)
		}
		if err == nil {
			err = p.config.DB.QueryRow(ctx, installationSQL).Scan(&p.layout.installation)
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case hopeless(err) != nil:
			return fmt.Errorf("workers: %w", hopeless(err))
		}
		p.config.Logger.WarnContext(ctx, "cannot begin", "error", err, "again_in", pause)
		sleep(ctx, pause)
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
			if err := p.renewLease(quit); err != nil && quit.Err() == nil {
				p.config.Logger.WarnContext(quit, "cannot renew the lease", "error", err)
				continue
			}
			for _, k := range p.registered() {
				k.fenceMoved(k.hand.begun())
			}
		case <-quit.Done():
			return
		}
	}
}

// endLease removes the lease of a worker that has given everything back.
func (p *Pool) endLease() {
	ctx, cancel := p.operation()
	defer cancel()
	if _, err := p.config.DB.Exec(ctx, leaseEndSQL, p.leaseName()); err != nil {
		p.config.Logger.WarnContext(ctx, "cannot end the lease", "error", err)
	}
}
