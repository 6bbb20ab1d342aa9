package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

const (
	// openSteps is the number of the newest steps of a chart, whose events still come.
	openSteps = 2
	// maxRates is the number of callers, those without a limit being one, whose steps are kept.
	maxRates = 32
)

// rates caches the steps of the chart of a day. A day of 100 kinds has 144,000 rows, which the first page reads. Later
// pages read only the newest steps and one other step, in turn. So late events and a rebuild appear in the chart later.
type rates struct {
	mu    sync.Mutex
	known map[string]*knownRates // by the caller; "": every one without a limit
}

// knownRates is the steps of callers that may read the same kinds.
type knownRates struct {
	mu    sync.Mutex // held while steps are read, so that one request reads them for all
	steps map[time.Time]projector.KindStats
	from  time.Time // every step from here is known, but the newest
	to    time.Time // the end of the last one
	turn  int       // the step that is read again
}

// of returns the steps for a caller.
func (r *rates) of(caller string) *knownRates {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[caller] == nil {
		if r.known == nil || len(r.known) >= maxRates {
			r.known = map[string]*knownRates{}
		}
		r.known[caller] = &knownRates{}
	}
	return r.known[caller]
}

// read returns n steps, the last of which begins at last. It leaves out steps without events.
func (k *knownRates) read(ctx context.Context, db ledger.DB, last time.Time, step time.Duration, n int,
	kinds []ledger.Kind) ([]projector.KindStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, to := last.Add(-time.Duration(n-1)*step), last.Add(step)
	since := k.to.Add(-openSteps * step)
	if k.steps == nil || since.Before(from) || k.from.After(from) || k.to.After(to) {
		k.steps, since = map[time.Time]projector.KindStats{}, from
	} else {
		k.turn = (k.turn + 1) % n
		again := from.Add(time.Duration(k.turn) * step)
		if err := k.replace(ctx, db, again, again.Add(step), step, kinds); err != nil {
			return nil, err
		}
	}
	if err := k.replace(ctx, db, since, to, step, kinds); err != nil {
		k.steps = nil
		return nil, err
	}
	k.from, k.to = from, to
	var all []projector.KindStats
	for at, s := range k.steps {
		if at.Before(from) {
			delete(k.steps, at)
			continue
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b projector.KindStats) int { return a.Minute.Compare(b.Minute) })
	return all, nil
}

// replace reads the steps of a range.
func (k *knownRates) replace(
	ctx context.Context, db ledger.DB, from, to time.Time, step time.Duration, kinds []ledger.Kind,
) error {
	found, err := projector.ReadRates(ctx, db, from, to, step, kinds...)
	if err != nil {
		return err
	}
	for at := from; at.Before(to); at = at.Add(step) {
		delete(k.steps, at)
	}
	for _, s := range found {
		k.steps[s.Minute.UTC()] = s
	}
	return nil
}
