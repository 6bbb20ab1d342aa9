package workers

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/kind_pause.sql
	kindPauseSQL string
	//go:embed sql/kind_resume.sql
	kindResumeSQL string
	//go:embed sql/kind_paused.sql
	kindPausedSQL string
)

// kindsEvery is how often a worker looks which kinds are paused, and which are overloaded.
const kindsEvery = time.Second

// PausedKind is a kind whose tasks nobody begins.
type PausedKind struct {
	Kind   ledger.Kind `json:"kind"`
	Since  time.Time   `json:"since"`
	Actor  string      `json:"actor"`
	Reason string      `json:"reason"`
}

// PauseKind has all workers, of today and of tomorrow, begin no task of a kind until it is resumed;
// they hear of it within about a second. Handlers that run go on. Enqueueing goes on as well. It
// reports whether it was not paused before; if it was, nothing changes. It commits.
//
// Errors: [*ledger.InvalidError], [ledger.ErrNotMigrated].
func (o *Operator) PauseKind(ctx context.Context, kind ledger.Kind, by By) (bool, error) {
	if err := kind.Validate(); err != nil {
		return false, err
	}
	if len(by.Reason) > MaxReasonBytes {
		return false, &ledger.InvalidError{Field: "reason", Rule: fmt.Sprintf("must have at most %d bytes, has %d", MaxReasonBytes, len(by.Reason))}
	}
	var actor *string
	if by.Actor != "" {
		actor = &by.Actor
	}
	tag, err := o.config.DB.Exec(ctx, kindPauseSQL, string(kind), actor, by.Reason)
	if err != nil {
		return false, pgerr.Explain(fmt.Sprintf("pause kind %s", kind), err)
	}
	return tag.RowsAffected() > 0, nil
}

// ResumeKind undoes [Operator.PauseKind]. It reports whether the kind was paused. Errors as there.
func (o *Operator) ResumeKind(ctx context.Context, kind ledger.Kind) (bool, error) {
	if err := kind.Validate(); err != nil {
		return false, err
	}
	tag, err := o.config.DB.Exec(ctx, kindResumeSQL, string(kind))
	if err != nil {
		return false, pgerr.Explain(fmt.Sprintf("resume kind %s", kind), err)
	}
	return tag.RowsAffected() > 0, nil
}

// PausedKinds returns the kinds that are paused, by name. Errors: [ledger.ErrNotMigrated].
func PausedKinds(ctx context.Context, db ledger.DB) ([]PausedKind, error) {
	rows, err := db.Query(ctx, kindPausedSQL)
	if err != nil {
		return nil, pgerr.Explain("paused kinds", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k PausedKind, err error) {
		var name, value string
		if err := row.Scan(&name, &value); err != nil {
			return k, err
		}
		_ = json.Unmarshal([]byte(value), &k) // somebody's own row pauses as well
		k.Kind, k.Since = ledger.Kind(name), k.Since.UTC()
		return k, nil
	})
	if err != nil {
		return nil, pgerr.Explain("paused kinds", err)
	}
	return all, nil
}

// watchKinds keeps looking which kinds are paused and which are overloaded, until quit is done. If
// the database is away, what was so stays so.
func (p *Pool) watchKinds(quit context.Context) {
	t := time.NewTicker(kindsEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.readPauses(quit)
			p.readLimits(quit)
		case <-quit.Done():
			return
		}
	}
}

func (p *Pool) readPauses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	all, err := PausedKinds(ctx, p.config.DB)
	if err != nil {
		if ctx.Err() == nil {
			p.runner.Warn(p.config.Logger, "cannot see which kinds are paused", "error", err)
		}
		return
	}
	paused := make(map[ledger.Kind]bool, len(all))
	for _, k := range all {
		paused[k.Kind] = true
	}
	for _, k := range p.registered() {
		if k.pause.set(paused[k.Name]) {
			k.Logger.InfoContext(ctx, "kind paused or resumed", "paused", paused[k.Name])
		}
	}
}

// pause is whether a kind is paused. It is safe for concurrent use.
type pause struct {
	mu      sync.Mutex
	on      bool
	changed context.Context // done at the next change; nil: nobody asked
	change  context.CancelFunc
}

// set reports whether that is a change.
func (p *pause) set(on bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on == on {
		return false
	}
	p.on = on
	if p.changed != nil {
		p.change()
		p.changed = nil
	}
	return true
}

func (p *pause) isOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on
}

// state returns what is done when it changes, too.
func (p *pause) state() (on bool, changed context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed, p.change = context.WithCancel(context.Background())
	}
	return p.on, p.changed
}

// Serve works on the kind's tasks in these shards until ctx is done, but for while it is paused.
// It returns an error only if going on is useless.
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
		forget := context.AfterFunc(changed, stop)
		err := k.serveUnpaused(unpaused, shards)
		forget()
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}
