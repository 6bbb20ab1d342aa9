package workers

import (
	"context"
	"sync"

	"github.com/taskledger/taskledger/ledger"
)

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
