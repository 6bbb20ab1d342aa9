package workers

import (
	"context"
	_ "embed"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/kind_shed.sql
var kindShedSQL string

//go:embed sql/kind_paused.sql
var kindPausedSQL string

// kindsEvery is the interval at which a worker reads which kinds are paused and which are overloaded.
const kindsEvery = time.Second

// watchKinds periodically reads which kinds are paused and which are overloaded, until quit is done. While the
// database is unavailable nothing changes.
func (p *Pool) watchKinds(quit context.Context) {
	t := time.NewTicker(kindsEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.updatePauses(quit)
			p.updateOverloads(quit)
		case <-quit.Done():
			return
		}
	}
}

// updatePauses pauses and resumes kinds as operators have requested (workers/operator).
func (p *Pool) updatePauses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	paused, err := p.readKinds(ctx, kindPausedSQL)
	if err != nil {
		if ctx.Err() == nil {
			p.runner.Warn(p.config.Logger, "cannot read which kinds are paused", "error", err)
		}
		return
	}
	for _, k := range p.registered() {
		if k.pause.set(paused[k.Name]) {
			k.Logger.InfoContext(ctx, "kind paused or resumed", "paused", paused[k.Name])
		}
	}
}

// readKinds returns the kinds that a statement returns.
func (p *Pool) readKinds(ctx context.Context, sql string) (map[ledger.Kind]bool, error) {
	rows, err := p.config.DB.Query(ctx, sql)
	if err != nil {
		return nil, pgerr.Explain("read kinds", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, pgerr.Explain("read kinds", err)
	}
	kinds := make(map[ledger.Kind]bool, len(names))
	for _, name := range names {
		kinds[ledger.Kind(name)] = true
	}
	return kinds, nil
}

// pause is the pause switch of a kind. It is safe for concurrent use.
type pause struct {
	mu      sync.Mutex // guards the fields below
	paused  bool
	changed context.Context // done at the next change; nil until used
	change  context.CancelFunc
}

// set pauses or resumes the kind. It reports whether that is a change.
func (p *pause) set(paused bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == paused {
		return false
	}
	p.paused = paused
	if p.changed != nil {
		p.change()
		p.changed = nil
	}
	return true
}

func (p *pause) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

// state returns whether the kind is paused, and a context that is done when that changes.
func (p *pause) state() (paused bool, changed context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed, p.change = context.WithCancel(context.Background())
	}
	return p.paused, p.changed
}

// Serve works on the kind's tasks in these shards until ctx is done, except while the kind is paused. It returns an
// error only if retrying is useless.
func (k *kind) Serve(ctx context.Context, shards ledger.ShardSet) error {
	for ctx.Err() == nil {
		paused, changed := k.pause.state()
		if paused {
			select {
			case <-changed.Done():
			case <-ctx.Done():
			}
			continue
		}
		unpaused, stop := context.WithCancel(ctx)
		detach := context.AfterFunc(changed, stop)
		err := k.serveUnpaused(unpaused, shards)
		detach()
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// updateOverloads reads the kinds whose oldest waiting tasks are discarded, or soon may be ([ledger.DiscardOldest]).
// Their attempts record their start before the handler runs, at any cost. Workers have received the oldest waiting
// tasks: without a recorded start, running tasks would be discarded repeatedly, and none would ever succeed.
func (p *Pool) updateOverloads(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	overloaded, err := p.readKinds(ctx, kindShedSQL)
	if err != nil {
		if ctx.Err() == nil {
			p.runner.Warn(p.config.Logger, "cannot read which kinds are overloaded", "error", err)
		}
		return
	}
	for _, k := range p.registered() {
		k.isShed.Store(overloaded[k.Name])
	}
}
