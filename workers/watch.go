package workers

import (
	"context"
	_ "embed"
	"encoding/hex"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/watch.sql
var watchSQL string

// watchEvery is the interval at which a worker reads the database. It is less than the second after which pgxpool
// pings an idle connection before a statement, in a round trip of its own.
const watchEvery = 900 * time.Millisecond

// view is the state of the database, as far as a worker needs it.
type view struct {
	asked       time.Time     // before the statement began
	incarnation string        // of the primary and its server; "": none yet, or a standby
	clock       time.Time     // of the database
	isAwaited   bool          // a process waits for outcomes
	epoch       int64         // of the dispatcher; 0: none has begun yet
	key         []byte        // of the dispatcher
	latency     time.Duration // for which the dispatcher lets events gather; 0: none has begun yet
	paused      map[ledger.Kind]bool
	shed        map[ledger.Kind]bool // their oldest waiting tasks are discarded
	claimed     map[ledger.Kind]bool // live workers claim their tasks
	limited     map[ledger.Kind]bool // limits of starts apply to them
	gated       map[ledger.Kind]bool // of these, a concurrency limit does
	firsts      map[ledger.Kind]bool // of these, a limit needs the event of each start
}

// watch reads the state of the database at intervals until quit is done. While it is unavailable nothing changes.
func (p *Pool) watch(quit context.Context) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.look(quit)
		case <-quit.Done():
			return
		}
	}
}

// look reads the state of the database. It pauses and resumes kinds as operators have requested (internal/operator).
//
// It also notes the kinds whose oldest waiting tasks are discarded, or soon may be ([ledger.DiscardOldest]). Attempts
// of these kinds record their start before the handler runs, whatever that costs. Workers hold the oldest waiting
// tasks: without a recorded start, running tasks would be discarded repeatedly, and none would ever succeed.
func (p *Pool) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.config.LeaseTTL)
	defer cancel()
	v, err := p.readView(ctx, p.config.DB)
	if err == nil {
		p.note(ctx, v)
		err = p.asker.learn(v) // last: offers that it lets in are begun as noted
	}
	if err != nil && ctx.Err() == nil {
		p.runner.Warn(p.config.Logger, "cannot read the state of the database", "error", err)
	}
}

// note applies a view to the kinds.
func (p *Pool) note(ctx context.Context, v view) {
	p.runner.SetAwaited(v.isAwaited)
	p.runner.SetLatency(v.latency)
	for _, k := range p.registered() {
		if paused := v.paused[k.Name]; k.isPaused.Swap(paused) != paused {
			k.Logger.InfoContext(ctx, "kind paused or resumed", "paused", paused)
			p.asker.wake()
		}
		k.isShed.Store(v.shed[k.Name])
		k.noteLimit(v)
		k.noteClaims(v)
	}
}

// noteLimit records whether limits of starts apply to the kind. If so, each attempt takes its permits before the
// handler, or records its start, and the database refuses it above the limit.
func (k *kind) noteLimit(v view) {
	is := v.limited[k.Name]
	k.SetLimited(is, v.gated[k.Name], is && !v.firsts[k.Name])
}

// recordsFirst reports whether attempts record their start before the handler runs.
func (k *kind) recordsFirst() bool {
	return !k.isClaimed && (k.claims.isOn.Load() || k.IsLimited() && !k.TakesPermits())
}

func (p *Pool) readView(ctx context.Context, db ledger.DB) (view, error) {
	v := view{asked: time.Now(), paused: make(map[ledger.Kind]bool), shed: make(map[ledger.Kind]bool),
		claimed: make(map[ledger.Kind]bool), limited: make(map[ledger.Kind]bool),
		gated: make(map[ledger.Kind]bool), firsts: make(map[ledger.Kind]bool)}
	rows, err := db.Query(ctx, watchSQL)
	if err != nil {
		return v, pgerr.Explain("read the state of the database", err)
	}
	var key, is string
	var latency int64
	var kind ledger.Kind
	columns := []any{
		&v.incarnation, pgquery.Micros(&v.clock), &v.isAwaited, &v.epoch, &key, &latency, (*string)(&kind), &is,
	}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		switch is {
		case "paused":
			v.paused[kind] = true
		case "claimed":
			v.claimed[kind] = true
		case "limited":
			v.limited[kind], v.firsts[kind] = true, true
		case "gated":
			v.limited[kind], v.firsts[kind], v.gated[kind] = true, true, true
		case "permit":
			v.limited[kind], v.gated[kind] = true, true
		case "shed":
			v.shed[kind] = true
		}
		return nil
	})
	v.latency = time.Duration(latency) * time.Microsecond
	if err == nil {
		v.key, err = hex.DecodeString(key)
	}
	return v, pgerr.Explain("read the state of the database", err)
}
