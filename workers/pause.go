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

//go:embed sql/kind_states.sql
var kindStatesSQL string

// kindsEvery is the interval at which a worker reads which kinds are paused and which are overloaded. It is less than
// the second after which pgxpool pings an idle connection before a statement, in a round trip of its own.
const kindsEvery = 900 * time.Millisecond

// watchKinds periodically reads which kinds are paused and which are overloaded, until quit is done. While the
// database is unavailable nothing changes.
func (p *Pool) watchKinds(quit context.Context) {
	t := time.NewTicker(kindsEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.updateKinds(quit)
		case <-quit.Done():
			return
		}
	}
}

// updateKinds pauses and resumes kinds as operators have requested (workers/operator). It also notes the kinds whose
// oldest waiting tasks are discarded, or soon may be ([ledger.DiscardOldest]): their attempts record their start before
// the handler runs, at any cost. Workers have received the oldest waiting tasks: without a recorded start, running
// tasks would be discarded repeatedly, and none would ever succeed.
func (p *Pool) updateKinds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	paused, shed, err := p.readKinds(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.runner.Warn(p.config.Logger, "cannot read which kinds are paused or overloaded", "error", err)
		}
		return
	}
	for _, k := range p.registered() {
		if k.pause.set(paused[k.Name]) {
			k.Logger.InfoContext(ctx, "kind paused or resumed", "paused", paused[k.Name])
		}
		k.isShed.Store(shed[k.Name])
	}
}

// readKinds returns the kinds that are paused, and those whose oldest waiting tasks are discarded.
func (p *Pool) readKinds(ctx context.Context) (paused, shed map[ledger.Kind]bool, err error) {
	rows, err := p.config.DB.Query(ctx, kindStatesSQL)
	if err != nil {
		return nil, nil, pgerr.Explain("read kinds", err)
	}
	paused, shed = make(map[ledger.Kind]bool), make(map[ledger.Kind]bool)
	var kind ledger.Kind
	var isPaused bool
	_, err = pgx.ForEachRow(rows, []any{(*string)(&kind), &isPaused}, func() error {
		if isPaused {
			paused[kind] = true
		} else {
			shed[kind] = true
		}
		return nil
	})
	return paused, shed, pgerr.Explain("read kinds", err)
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
