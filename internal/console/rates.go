package console

import (
	"cmp"
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
	// readSteps is the number of steps that a statement reads at most.
	readSteps = 24
)

// maxRatesRead is the time after which a page reads no more steps. The next pages read the older ones.
const maxRatesRead = 700 * time.Millisecond

// ratesKey names the steps of a chart: the caller, or "" for every one without a limit, the given kinds, or "" for all,
// and the length and number of its steps.
type ratesKey struct {
	caller string
	kinds  string
	step   time.Duration
	steps  int
}

// knownRates caches the steps of a chart. A day of 100 kinds has 144,000 rows, which the first page reads. Later
// pages read only the newest steps and one other step, in turn. So late events and a rebuild appear in the chart later.
type knownRates struct {
	mu    sync.Mutex // held while steps are read, so that one request reads them for all
	steps map[time.Time][]projector.KindStats
	from  time.Time // every step from here is known, but the newest
	to    time.Time // the end of the last one
	turn  int       // the step that is read again
}

// read returns the newest of n steps, up to the step that begins at last, and whether these are all. It reads unknown
// steps, the newest first, and begins no other statement after a time. Steps without events are left out. A step has
// the sums of all kinds, or a value for each of the given kinds.
func (k *knownRates) read(ctx context.Context, db ledger.DB, last time.Time, step time.Duration, n int,
	kinds []ledger.Kind, most time.Duration) (all []projector.KindStats, isWhole bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	begun := time.Now()
	from, to := last.Add(-time.Duration(n-1)*step), last.Add(step)
	since := k.to.Add(-openSteps * step)
	if k.steps == nil || since.Before(from) || k.to.After(to) || since.Before(k.from) {
		k.steps, since = map[time.Time][]projector.KindStats{}, later(from, to.Add(-readSteps*step))
		k.from = since
	} else if known := int(to.Sub(k.from) / step); known > openSteps {
		k.turn = (k.turn + 1) % min(n, known)
		again := to.Add(-time.Duration(k.turn+1) * step)
		if err := k.replace(ctx, db, again, again.Add(step), step, kinds); err != nil {
			return nil, false, err
		}
	}
	if err := k.replace(ctx, db, since, to, step, kinds); err != nil {
		k.steps = nil
		return nil, false, err
	}
	k.to = to
	for k.from.After(from) && time.Since(begun) < most {
		older := later(from, k.from.Add(-readSteps*step))
		if err := k.replace(ctx, db, older, k.from, step, kinds); err != nil {
			return nil, false, err
		}
		k.from = older
	}
	k.from = later(k.from, from)
	for at, s := range k.steps {
		if at.Before(from) {
			delete(k.steps, at)
			continue
		}
		all = append(all, s...)
	}
	slices.SortFunc(all, func(a, b projector.KindStats) int {
		return cmp.Or(a.Minute.Compare(b.Minute), cmp.Compare(a.Kind, b.Kind))
	})
	return all, !k.from.After(from), nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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
		at := s.Minute.UTC()
		k.steps[at] = append(k.steps[at], s)
	}
	return nil
}
