package console

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/taskledger/taskledger/health"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

const (
	// maxMarks is the number of starts of versions on a chart.
	maxMarks = 20
	// maxKinds is the maximum number of kinds on a page.
	maxKinds = 200
)

// nowData is the content of the page Now.
type nowData struct {
	Conditions []health.Condition
	Unread     string // why the conditions could not be read
	IsLimited  bool   // the caller is limited to kinds, and reads no conditions
	Hour, Day  chart
	Totals     projector.KindStats // of the last hour
	PerSecond  float64             // succeeded, in the last five whole minutes
	Kinds      []kindNow
	Others     int // kinds that are not among Kinds
	OldestAt   time.Time
	OldestOf   ledger.Kind
}

// kindNow is a kind on the page Now: its last hour, and its tasks by state.
type kindNow struct {
	projector.KindStats
	Available, Busy, Dead int64
	OldestAt              time.Time
}

// Waits returns a quantile of the waiting times, or a dash if no attempt has begun.
func (k kindNow) Waits(q float64) string { return quantile(k.Waiting, q) }

// Runs returns a quantile of the running times, or a dash if no attempt has ended.
func (k kindNow) Runs(q float64) string { return quantile(k.Running, q) }

func quantile(h projector.Histogram, q float64) string {
	if h.Count() == 0 {
		return "–"
	}
	return printable.Age(h.Quantile(q))
}

func (h *Handler) showNow(ctx context.Context, _ *http.Request, v *view) error {
	d := &nowData{}
	if d.IsLimited = v.Caller.IsLimited(); !d.IsLimited { // conditions name all kinds
		report, err := h.readReport(ctx)
		if err != nil {
			d.Unread = h.explain((&http.Request{}).WithContext(ctx), err).title
		}
		d.Conditions = report.Degraded
	}
	minute := v.At.UTC().Truncate(time.Minute)
	minutes, err := h.readHour(ctx, minute)
	if err != nil {
		return err
	}
	const step = 15 * time.Minute
	last := v.At.UTC().Truncate(step)
	day, err := h.readRates(ctx, v, last, step, 96)
	if err != nil {
		return err
	}
	minutes = slices.DeleteFunc(slices.Clone(minutes), func(s projector.KindStats) bool {
		return !v.Caller.MayUse(s.Kind)
	})
	d.Hour = newChart("Attempts in the last hour, by minute", minutes, minute.Add(-59*time.Minute), time.Minute, 60)
	d.Day = newChart("Attempts in the last day, by 15 minutes", day, last.Add(-95*step), step, 96)
	if !d.IsLimited { // a start is not recorded by kind
		starts, err := workers.ReadVersionStarts(ctx, h.config.DB, d.Day.From, maxMarks)
		if err != nil {
			return err
		}
		d.Hour.addMarks(starts, minute.Add(time.Minute))
		d.Day.addMarks(starts, last.Add(step))
	}
	kinds := map[ledger.Kind]*kindNow{}
	kind := func(k ledger.Kind) *kindNow {
		if kinds[k] == nil {
			kinds[k] = &kindNow{KindStats: projector.KindStats{Kind: k}}
		}
		return kinds[k]
	}
	recent := int64(0)
	for _, s := range minutes {
		kind(s.Kind).Add(s)
		d.Totals.Add(s)
		if s.Minute.Before(minute) && !s.Minute.Before(minute.Add(-5*time.Minute)) {
			recent += s.Succeeded
		}
	}
	d.PerSecond = float64(recent) / 300
	if err := h.addCounts(ctx, v, kind); err != nil {
		return err
	}
	oldest, err := projector.ReadOldestWaiting(ctx, h.config.DB)
	if err != nil {
		return err
	}
	for k, at := range oldest {
		if !v.Caller.MayUse(k) {
			continue
		}
		kind(k).OldestAt = at
		if d.OldestAt.IsZero() || at.Before(d.OldestAt) {
			d.OldestAt, d.OldestOf = at, k
		}
	}
	d.Kinds, d.Others = busiest(kinds)
	v.Data = d
	return nil
}

// manyRows is the number of rows by kind from which they are kept: a page reads them in about 50 ms.
const manyRows = 5000

// readCounts returns the number of tasks by kind and state. The slice must not be changed.
func (h *Handler) readCounts(ctx context.Context) ([]ledger.StateCount, error) {
	return h.counts.Get(ctx, func(ctx context.Context) ([]ledger.StateCount, bool, error) {
		counts, err := projector.ReadCounts(ctx, h.config.DB, "", lists.All)
		return counts, len(counts) >= manyRows, err
	})
}

// readHour returns the statistics of the hour that ends with a minute. The slice must not be changed.
func (h *Handler) readHour(ctx context.Context, last time.Time) ([]projector.KindStats, error) {
	return h.hour.Get(ctx, func(ctx context.Context) ([]projector.KindStats, bool, error) {
		all, err := projector.ReadKindStats(ctx, h.config.DB, "", last.Add(-59*time.Minute), last.Add(time.Minute))
		return all, len(all) >= manyRows, err
	})
}

// readRates returns n steps with the sums of the kinds that the caller may read. The last one begins at a time.
func (h *Handler) readRates(ctx context.Context, v *view, last time.Time, step time.Duration, n int) (
	[]projector.KindStats, error) {
	if !v.Caller.IsLimited() {
		return h.rates.of("").read(ctx, h.config.DB, last, step, n, nil)
	}
	kinds, err := h.kinds(ctx, v.Caller)
	if err != nil || len(kinds) == 0 {
		return nil, err
	}
	return h.rates.of(v.Caller.ID()).read(ctx, h.config.DB, last, step, n, kinds)
}

// busiest returns at most maxKinds kinds by name: those with the most attempts in the last hour, then with the most
// tasks. It also returns how many others there are, because a producer can create any number of kinds.
func busiest(kinds map[ledger.Kind]*kindNow) (shown []kindNow, others int) {
	all := slices.SortedFunc(maps.Values(kinds), func(a, b *kindNow) int {
		return cmp.Or(cmp.Compare(b.Succeeded+b.Failed, a.Succeeded+a.Failed),
			cmp.Compare(b.Dead+b.Busy+b.Available, a.Dead+a.Busy+a.Available), cmp.Compare(a.Kind, b.Kind))
	})
	n := min(len(all), maxKinds)
	for _, k := range all[:n] {
		shown = append(shown, *k)
	}
	slices.SortFunc(shown, func(a, b kindNow) int { return cmp.Compare(a.Kind, b.Kind) })
	return shown, len(all) - n
}

// addCounts adds the numbers of tasks to the kinds that the caller may read.
func (h *Handler) addCounts(ctx context.Context, v *view, kind func(ledger.Kind) *kindNow) error {
	counts, err := h.readCounts(ctx)
	if err != nil {
		return err
	}
	for _, n := range counts {
		if !v.Caller.MayUse(n.Kind) {
			continue
		}
		switch n.State {
		case ledger.StateAvailable:
			kind(n.Kind).Available += n.Tasks
		case ledger.StateRunning:
			kind(n.Kind).Busy += n.Tasks
		case ledger.StateDead:
			kind(n.Kind).Dead += n.Tasks
		default:
			kind(n.Kind)
		}
	}
	return nil
}
