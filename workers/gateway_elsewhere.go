package workers

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// An attempt is elsewhere if another process of serve gave it to its worker, perhaps before a restart. Its sealed fence
// and the ledger are enough to end it: the append is a compare-and-set.

var (
	//go:embed sql/elsewhere_fail.sql
	elsewhereFailSQL string
	//go:embed sql/elsewhere_snooze.sql
	elsewhereSnoozeSQL string
)

// codeEnded is the SQLSTATE of the functions that end an attempt which has ended.
const codeEnded = "TL001"

// maxElsewhereRaces bounds how often an outcome is sent again because a report of the same attempt came first.
const maxElsewhereRaces = 5

// fenceKey returns the key of fences.
func (g *gateway) fenceKey(ctx context.Context) ([]byte, error) {
	if key := g.key.Load(); key != nil {
		return *key, nil
	}
	key, err := lease.FenceKey(ctx, g.config.DB)
	if err != nil {
		return nil, err
	}
	g.key.Store(&key)
	return key, nil
}

// openAll returns the fences of texts by their place, without the invalid ones.
func (g *gateway) openAll(ctx context.Context, caller string, sealed []string) (map[int]fence, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	key, err := g.fenceKey(ctx)
	if err != nil {
		return nil, err
	}
	open := make(map[int]fence)
	for i, text := range sealed {
		if f, ok := openFence(key, caller, text); ok {
			open[i] = f
		}
	}
	return open, nil
}

// endElsewhere ends attempts that this process does not have, and sets their states. It leaves out attempts that cannot
// be ended any more.
func (g *gateway) endElsewhere(ctx context.Context, caller string, outcomes []remote.Outcome, states []remote.State) {
	sealed := make([]string, len(outcomes))
	for i, o := range outcomes {
		if states[i] == (remote.State{}) {
			sealed[i] = o.Fence
		}
	}
	open, err := g.openAll(ctx, caller, sealed)
	var finished []int
	var fences []fence
	for i, f := range open {
		switch o := outcomes[i]; {
		case f.Key != o.Key || f.attempt != o.Attempt:
			delete(open, i)
		case f.isOver():
			delete(open, i)
			g.cut(ctx, f)
		case o.Err == nil:
			finished, fences = append(finished, i), append(fences, f)
		}
	}
	if err == nil && len(fences) > 1 {
		err = g.finishElsewhere(ctx, open, finished, fences, outcomes, states)
	}
	if err != nil {
		for i := range sealed {
			if sealed[i] != "" && states[i] == (remote.State{}) {
				states[i].Err = err
			}
		}
		return
	}
	for i, f := range open {
		states[i].State, states[i].Err = g.endOne(ctx, f, outcomes[i])
	}
}

// finishElsewhere records successes together. Where a success is recorded, or never can be, it sets the state and
// removes the success from open. Others append to the rest meanwhile.
func (g *gateway) finishElsewhere(ctx context.Context, open map[int]fence, finished []int, fences []fence,
	outcomes []remote.Outcome, states []remote.State,
) error {
	all, err := g.read(ctx, fences)
	if err != nil {
		return err
	}
	var places []int
	var requests []ledger.AppendRequest
	for n, e := range all {
		if i := finished[n]; e.runs() || e.isNext() {
			places = append(places, i)
			requests = append(requests, e.succeeded(e.version, outcomes[i].Result))
		} else {
			delete(open, i)
		}
	}
	for n, r := range ledger.AppendEach(ctx, g.config.DB, requests) {
		i := places[n]
		switch {
		case r.Err == nil:
			states[i].State = ledger.StateSucceeded
		case isEndable(r.Err):
			continue
		default:
			states[i].Err = r.Err
		}
		delete(open, i)
	}
	return nil
}

// isEndable reports whether the attempt may run even though an append has failed.
func isEndable(err error) bool {
	var invalid *ledger.InvalidError // the key occurs twice
	return ledger.IsConflict(err) || errors.As(err, &invalid)
}

// endOne ends an attempt. It returns "" without an error if the attempt has ended already.
func (g *gateway) endOne(ctx context.Context, f fence, o remote.Outcome) (state ledger.State, err error) {
	for range maxElsewhereRaces {
		var version ledger.Version
		version, err = g.versionOf(ctx, f)
		if err == nil && version == 0 {
			return "", nil
		}
		if err == nil {
			state, err = g.append(ctx, f, version, o)
		}
		if err == nil || !ledger.IsConflict(err) && pgerr.Code(err) != codeEnded {
			return state, err
		}
	}
	return "", errors.Join(ledger.ErrUnavailable, err)
}

// versionOf returns the version of the last event of an attempt, 0 if it has ended. It records its start, if that is
// not recorded yet.
func (g *gateway) versionOf(ctx context.Context, f fence) (ledger.Version, error) {
	all, err := g.read(ctx, []fence{f})
	if err != nil {
		return 0, err
	}
	switch e := all[0]; {
	case e.runs():
		return e.version, nil
	case !e.isNext():
		return 0, nil
	}
	e, err := ledger.Append(ctx, g.config.DB, f.started())
	return e.Version, err
}

// started returns the append of the attempt's start.
func (f fence) started() ledger.AppendRequest {
	start := ledger.AppendRequest{Key: f.Key, Expected: f.version, Type: ledger.EventStarted, Actor: f.worker}
	if f.isOnce {
		start.Data = json.RawMessage(`{"guarantee":"at most once"}`)
	}
	return start
}

// succeeded returns the append of a success.
func (f fence) succeeded(after ledger.Version, result json.RawMessage) ledger.AppendRequest {
	return ledger.AppendRequest{
		Key: f.Key, Expected: after, Type: ledger.EventSucceeded, Actor: f.worker,
		Data: attempt.SucceededData(f.worker, f.begun, result),
	}
}

// append appends the outcome of an attempt after its last event, by the rules of the attempts of this process.
func (g *gateway) append(
	ctx context.Context, f fence, after ledger.Version, o remote.Outcome,
) (state ledger.State, err error) {
	d := attempt.Decision{}
	if o.Err != nil {
		d = vocabulary{}.Decide(o.Err)
	}
	switch {
	case o.Err == nil:
		_, err = ledger.Append(ctx, g.config.DB, f.succeeded(after, o.Result))
		return ledger.StateSucceeded, err
	case d.Action == attempt.Snooze:
		in, at := due(d)
		_, err = g.config.DB.Exec(
			ctx, elsewhereSnoozeSQL, string(f.Kind), string(f.BizID), int64(after), in, at)
		return ledger.StateScheduled, explainEnd(f, err)
	case d.Action == attempt.Interrupt && !f.isOnce:
		_, err = ledger.Append(ctx, g.config.DB, ledger.AppendRequest{
			Key: f.Key, Expected: after, Type: ledger.EventInterrupted, Actor: f.worker,
			Data: attempt.ReasonData(d.Reason, f.worker, f.begun),
		})
		return ledger.StateAvailable, err
	}
	isPermanent := d.Action == attempt.Bury || f.isOnce && !d.IsExplicit
	var in *int64
	var policy *string
	if d.HasRetry && !isPermanent {
		in, _ = due(d)
	}
	if d.Retry != nil {
		text, err := json.Marshal(d.Retry)
		if err != nil {
			return "", err
		}
		policy = pgquery.Optional(string(text))
	}
	kind, _ := vocabulary{}.Describe(o.Err)
	args := []any{
		string(f.Kind), string(f.BizID), int64(after), printable.Storable(o.Err.Error(), attempt.MaxMessage),
		printable.Storable(kind, attempt.MaxMessage/8), in, fmt.Sprint(isPermanent), policy,
	}
	_, err = pgquery.Row(ctx, g.config.DB, elsewhereFailSQL, args, (*string)(&state))
	return state, explainEnd(f, err)
}

// due returns the parameters of a delay in microseconds or a point in time.
func due(d attempt.Decision) (in *int64, at *string) {
	if d.At.IsZero() {
		return new(d.In.Microseconds()), nil
	}
	return nil, new(d.At.UTC().Format(time.RFC3339Nano))
}

func explainEnd(f fence, err error) error {
	if pgerr.Code(err) == codeEnded {
		return err
	}
	return pgerr.Explain("end the attempt at "+f.Key.String(), err)
}

// cut ends an attempt whose time is up. The process that gave it also does so; the later of the two has no effect.
func (g *gateway) cut(ctx context.Context, f fence) {
	version, err := g.versionOf(ctx, f)
	if err != nil || version == 0 {
		return
	}
	if f.isDeadline { // the scheduler ends the task
		_, err = ledger.Append(ctx, g.config.DB, ledger.AppendRequest{
			Key: f.Key, Expected: version, Type: ledger.EventInterrupted, Actor: f.worker,
			Data: json.RawMessage(`{"reason":"finish_by"}`),
		})
	} else {
		late := fmt.Errorf("%w after %s", ErrTimeout, f.until.Sub(f.begun))
		_, err = g.append(ctx, f, version, remote.Outcome{Err: late})
	}
	if err != nil && !ledger.IsConflict(err) && pgerr.Code(err) != codeEnded {
		g.config.Logger.WarnContext(ctx, "cannot end an attempt whose time is up", "task", f.Key.String(), "error", err)
	}
}
