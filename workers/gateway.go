package workers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// gateway gives tasks to workers in other processes that ask for them, such as the workers of package api over HTTP.
// For each caller it is a worker, with a lease under the caller's name: the same dispatcher gives it tasks, and
// attempts have the same fences, limits, order and retries as the attempts of a [Pool]. The worker that has asked
// takes a handler's place: it ends the attempt with [gateway.End].
//
// Any gateway of the same ledger accepts the outcome of an attempt, even if the process that gave it has ended: the
// fence and the ledger are enough. It is safe for concurrent use.
type gateway struct {
	config remote.Config
	key    atomic.Pointer[[]byte] // of fences, once it is read

	mu      sync.Mutex      // guards the fields below
	running context.Context // of new pools; done after Drain
	stop    context.CancelFunc
	pools   map[string]*gatewayPool
	stopped bool
	ended   sync.WaitGroup // of the pools
}

// maxCallers bounds the callers that work at a time: each needs a lease, and a poll of the database every second.
const maxCallers = 1000

func init() {
	remote.New = func(c remote.Config) (remote.Gateway, error) {
		g, err := newGateway(c)
		if err != nil {
			return nil, err
		}
		return g, nil
	}
}

// newGateway returns a gateway. It does not connect to anything yet. It returns an error that names every fault.
func newGateway(c remote.Config) (*gateway, error) {
	if err := poolConfig(c, "x").Validate(); err != nil {
		return nil, err
	}
	c.Term = cmp.Or(c.Term, defaultLeaseTTL)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	g := &gateway{config: c, pools: make(map[string]*gatewayPool)}
	g.running, g.stop = context.WithCancel(context.Background())
	return g, nil
}

func poolConfig(c remote.Config, name string) Config {
	return Config{DB: c.DB, NATS: c.NATS, Name: name, LeaseTTL: c.Term,
		StopTimeout: c.StopTimeout, Logger: c.Logger}
}

// Drain begins no further task, and ends the waits of all callers with [ErrStopping]. It returns when no task is at
// work, but after 10 s at the latest; then the tasks that are still at work go on without this process, under the
// leases of their sessions, and others are given back. The gateway is unusable afterwards.
func (g *gateway) Drain() {
	g.mu.Lock()
	g.stopped = true
	g.stop()
	g.mu.Unlock()
	g.ended.Wait()
}

// Rest ends the pools of all callers. The next Ask of each starts a new one.
func (g *gateway) Rest() {
	g.mu.Lock()
	g.stop()
	if !g.stopped {
		g.running, g.stop = context.WithCancel(context.Background())
	}
	g.mu.Unlock()
	g.ended.Wait()
}

// pool returns the pool of a caller. It starts the pool of a new caller.
func (g *gateway) pool(caller string) (*gatewayPool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch p := g.pools[caller]; {
	case g.stopped:
		return nil, ErrStopping
	case p != nil:
		return p, nil
	case len(g.pools) >= maxCallers:
		return nil, fmt.Errorf("%w: %d callers work already", ledger.ErrUnavailable, maxCallers)
	}
	p, err := g.newPool(caller)
	if err != nil {
		return nil, err
	}
	g.pools[caller] = p
	running := g.running
	g.ended.Go(func() {
		err := p.run(running)
		g.mu.Lock()
		delete(g.pools, caller)
		g.mu.Unlock()
		if err != nil {
			g.config.Logger.Error("the worker of a caller of the API has stopped", "id", p.pool.id, "error", err)
		}
	})
	return p, nil
}

// isStopped reports whether no task begins any more.
func (g *gateway) isStopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopped
}

// existing returns the pool of a caller, or nil.
func (g *gateway) existing(caller string) *gatewayPool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pools[caller]
}

// errReleased, errNotTaken and errLost end attempts of a gateway.
var (
	errReleased = errors.New("the worker has given the task back")
	errNotTaken = fmt.Errorf("%w: no worker has taken the task", ErrNotBegun)
	errLost     = errors.New("its worker did not report")
)

// Ask returns tasks for a worker of a caller, as soon as there is one. It returns none if the time is up, ctx is done,
// or another call of the session has begun. It returns a [*GuaranteeError], [ErrStopping], and errors of the database.
func (g *gateway) Ask(ctx context.Context, caller string, a remote.Ask) (remote.Answer, error) {
	received, err := parseBatches(a.Received)
	if err != nil {
		return remote.Answer{}, err
	}
	for {
		_, err := g.fenceKey(ctx)
		var p *gatewayPool
		if err == nil {
			p, err = g.pool(caller)
		}
		if err == nil {
			err = p.handle(a.Kinds, Guarantee(a.Guarantee))
		}
		var answer remote.Answer
		if err == nil {
			answer, err = p.ask(ctx, a, received)
		}
		if !errors.Is(err, errPoolEnded) {
			return answer, err
		}
		<-p.ended
	}
}

// End ends attempts, and returns the state of each task once the outcomes are committed. The same outcomes again have
// the same states.
func (g *gateway) End(ctx context.Context, caller string, outcomes ...remote.Outcome) []remote.State {
	states := make([]remote.State, len(outcomes))
	ended := make([]*delivery, len(outcomes))
	p := g.existing(caller)
	for i, o := range outcomes {
		if n := len(o.Result); n > maxResultBytes {
			states[i].Err = &ledger.InvalidError{Field: "result", Rule: fmt.Sprintf(
				"must have at most %d bytes, got %d: store it elsewhere and leave a reference", maxResultBytes, n)}
		} else if n > 0 && !ledger.IsJSON(o.Result) {
			rule := "must be JSON that nests at most 512 levels deep"
			states[i].Err = &ledger.InvalidError{Field: "result", Rule: rule}
		} else if p != nil {
			ended[i] = p.end(o.AttemptRef, newRemoteOutcome(o.Result, o.Err))
		}
	}
	for i := range outcomes {
		if ended[i] != nil {
			states[i].State, states[i].Err = ended[i].await(ctx)
		}
	}
	g.endElsewhere(ctx, caller, outcomes, states)
	for i, o := range outcomes {
		if states[i] == (remote.State{}) {
			states[i].State, states[i].Err = g.find(ctx, caller, o.AttemptRef, o.Result, o.Err)
		}
	}
	return states
}

// find answers a repeated call whose attempt is not in memory any more, from the ledger.
func (g *gateway) find(
	ctx context.Context, caller string, a remote.AttemptRef, result json.RawMessage, err error,
) (ledger.State, error) {
	open, loadErr := g.openAll(ctx, caller, []string{a.Fence})
	if loadErr != nil {
		return "", loadErr
	}
	f, ok := open[0]
	wasGiven := ok && f.Key == a.Key && f.attempt == a.Attempt
	t, loadErr := g.load(ctx, a, wasGiven)
	if loadErr != nil {
		return "", loadErr
	}
	if wasGiven {
		isSame, loadErr := g.isRecorded(ctx, caller, f, t, result, err)
		if isSame || loadErr != nil {
			return t.State, loadErr
		}
	}
	return "", &remote.EndedError{Key: a.Key, Attempt: a.Attempt, State: t.State, Version: t.Version}
}

// load returns the task of an attempt. A task that was given and does not exist was archived, or a fail-over has lost
// it: the attempt has ended.
func (g *gateway) load(ctx context.Context, a remote.AttemptRef, wasGiven bool) (ledger.Task, error) {
	t, err := ledger.Load(ctx, g.config.DB, a.Key)
	if wasGiven && errors.Is(err, ledger.ErrUnknownTask) {
		err = &remote.EndedError{Key: a.Key, Attempt: a.Attempt}
	}
	return t, err
}

// isRecorded reports whether an attempt of the task's current run has ended with an outcome.
func (g *gateway) isRecorded(
	ctx context.Context, caller string, f fence, t ledger.Task, result json.RawMessage, outcome error,
) (bool, error) {
	all, err := g.read(ctx, []fence{f})
	if err != nil || !all[0].isFound || !all[0].isOfRun() {
		return false, err
	}
	o := ledger.NewestOptions{
		Types: []ledger.EventType{ledger.EventSucceeded, ledger.EventFailed, ledger.EventSnoozed}, Limit: 1,
	}
	newest, err := ledger.NewestOf(ctx, g.config.DB, f.Key, o)
	if err != nil || len(newest) == 0 || newest[0].Attempt != f.attempt || newest[0].Version <= f.version ||
		newest[0].Actor != f.worker && newest[0].Actor != f.sessionWorker(caller) {
		return false, err
	}
	var reported *remote.Error
	switch e := newest[0]; {
	case e.Type == ledger.EventSucceeded:
		return outcome == nil && isSameJSON(t.Result, result), nil
	case e.Type == ledger.EventSnoozed:
		return outcome != nil && vocabulary{}.Decide(outcome).Action == attempt.Snooze, nil
	case errors.As(outcome, &reported):
		return e.ErrorText() == printable.Storable(reported.Message, attempt.MaxMessage), nil
	}
	return false, nil
}

// isSameJSON reports whether two texts are the same value; missing equals null.
func isSameJSON(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || bytes.Equal(canonical(a), canonical(b))
}

// canonical returns JSON with the members of objects in one order.
func canonical(text json.RawMessage) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if len(text) > 0 && d.Decode(&v) != nil {
		return text
	}
	out, _ := json.Marshal(v) // as decoded
	return out
}

// Progress reports how far an attempt is, as [Job.Progress] does. It returns an [*remote.EndedError], and a
// [*ledger.InvalidError] for a report that is too large.
func (g *gateway) Progress(ctx context.Context, caller string, a remote.AttemptRef, report json.RawMessage) error {
	if p := g.existing(caller); p != nil {
		if d := p.running(a); d != nil {
			return d.job.Progress(report)
		}
	}
	isAtWork, wasGiven, err := g.progressElsewhere(ctx, caller, a, report)
	if err != nil || isAtWork {
		return err
	}
	t, err := g.load(ctx, a, wasGiven)
	if err != nil {
		return err
	}
	return &remote.EndedError{Key: a.Key, Attempt: a.Attempt, State: t.State, Version: t.Version}
}

// Heartbeat renews the tasks that a session holds, and returns the finished ones.
func (g *gateway) Heartbeat(ctx context.Context, caller, session string, fences []string) []remote.Ended {
	var ended []remote.Ended
	if p := g.existing(caller); p != nil {
		ended, fences = p.heartbeat(session, fences, true)
	}
	return append(ended, g.holdElsewhere(ctx, caller, session, fences)...)
}

// Live renews the tasks that a session holds, and returns the fences of tasks that are not over, whatever has ended the
// others.
func (g *gateway) Live(caller, session string, fences []string) []string {
	p := g.existing(caller)
	if p == nil {
		return nil
	}
	_, _ = p.heartbeat(session, fences, false)
	return p.live(session, fences)
}

// Term returns how long a task stays with a worker that does not report.
func (g *gateway) Term() time.Duration { return g.config.Term }

// Release gives back tasks of a session, or all if fences is nil: then the session ends. It returns their number once
// that is recorded.
func (g *gateway) Release(ctx context.Context, caller, session string, fences []string) (int, error) {
	var released []*delivery
	if p := g.existing(caller); p != nil {
		released, fences = p.release(session, fences)
	}
	n, err := g.releaseElsewhere(ctx, caller, session, fences)
	if err != nil {
		return 0, err
	}
	for _, d := range released {
		select {
		case <-d.ended:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return len(released) + n, nil
}
