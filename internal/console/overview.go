package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/reserved"
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

// overviewData is the content of the page Overview.
type overviewData struct {
	Troubles  []trouble
	Unread    string // why the conditions could not be read
	IsLimited bool   // the caller is limited to kinds, and reads no conditions
	Tiles     []tile
	Chart     chart
	Kinds     []*kindNow
	Others    int // kinds that are not among Kinds
	Own       int // kinds of taskledger that are left out
}

// kindNow is a kind with its last hour and its tasks by state.
type kindNow struct {
	projector.KindStats
	Tasks              stateCounts
	OldestAt           time.Time
	RunningAt          time.Time      // the last event of the running task without news for the longest time
	Workers            int64          // live
	Unhandled          *unhandledKind // nil: a live worker handles it, or no task needs one
	Pause              *operator.PausedKind
	Attempts, Failures [sparkSteps]float64
	Last               projector.KindStats   // of the last step
	LastFailed         time.Time             // the last minute of the last step with a failed attempt
	Since              int64                 // attempts that succeeded in later minutes
	IsGrowing          bool                  // its backlog
	IsStuck            bool                  // a task runs far longer than others
	Resumed            *operator.ResumedKind // of a failing kind, in the last step; nil: none
	BizID              ledger.BizID          // of the task on whose page it is; "": on another page
}

func newKindNow(k ledger.Kind) *kindNow {
	return &kindNow{KindStats: projector.KindStats{Kind: k}, Tasks: stateCounts{}}
}

const (
	// sparkSteps is the number of steps of a sparkline.
	sparkSteps = 12
	// sparkStep is the length of a step of a sparkline of the last hour.
	sparkStep = 5 * time.Minute
	// failingShare is the share of failed attempts, in the last step or hour, from which a kind is failing.
	failingShare = 0.2
	// failingLeast is the number of failed attempts from which a kind can be failing.
	failingLeast = 5
	// growingLeast and growingAge are the number of waiting tasks, and the time that the oldest has waited, from which
	// the backlog of a kind can be growing.
	growingLeast, growingAge = 100, time.Minute
	// stuckAge and stuckTimes are how long a task has had no event, at least and in running times of the slowest
	// hundredth, from which it may be stuck.
	stuckAge, stuckTimes = 2 * time.Minute, 10
	// Of a kind with at least quickLeast attempts in the hour, quickAge and quickTimes suffice.
	quickAge, quickTimes, quickLeast = 20 * time.Second, 100, 100
)

// Paused returns the pause of the kind, nil if it is not paused.
func (k *kindNow) Paused() *pause {
	if k.Pause == nil {
		return nil
	}
	return &pause{k.Pause.Actor, k.Pause.Reason, k.Pause.Since}
}

// Oldest returns how long the oldest available task has waited, a dash if none waits for 30 s, see
// [projector.ReadOldest].
func (k *kindNow) Oldest(at time.Time) string {
	if k.OldestAt.IsZero() {
		return "–"
	}
	return age(at.Sub(k.OldestAt))
}

// Waits returns a quantile of the waiting times, or a dash if no attempt has begun.
func (k *kindNow) Waits(q float64) string { return quantile(k.Waiting, q) }

// Runs returns a quantile of the running times, or a dash if no attempt has ended.
func (k *kindNow) Runs(q float64) string { return quantile(k.Running, q) }

// Spark returns the attempts of the last hour.
func (k *kindNow) Spark() spark {
	say := fmt.Sprintf("%s attempts in the last hour, %s failed", printable.Count(k.Succeeded+k.Failed),
		printable.Count(k.KindStats.Failed))
	return newSpark(say, k.Attempts[:], k.Failures[:])
}

// Share returns the share of failed attempts, "" without any.
func (k *kindNow) Share() string { return percent(k.Failed, k.Succeeded+k.Failed) }

// Recent returns how many of the attempts of the last step failed: it shows whether a trouble is over.
func (k *kindNow) Recent() string { return share(k.Last) }

// share returns how many of the attempts failed.
func share(s projector.KindStats) string {
	return fmt.Sprintf("%s of %s", printable.Count(s.Failed), printable.Count(s.Succeeded+s.Failed))
}

// addMinute adds a minute of the last step. They come in their order.
func (k *kindNow) addMinute(s projector.KindStats) {
	if s.Failed > 0 {
		k.LastFailed, k.Since = s.Minute, 0
	} else if !k.LastFailed.IsZero() {
		k.Since += s.Succeeded
	}
}

// Healed returns how many attempts have succeeded since the last failed one, if many failed before; "" if too few.
func (k *kindNow) Healed() string {
	if k.Since < failingLeast {
		return ""
	}
	return "all of the last " + printable.Count(k.Since) + " succeeded"
}

// Growth returns the rates at which tasks of the kind arrive and end.
func (k *kindNow) Growth() string {
	return fmt.Sprintf("%s arrive, %s end", perSecond(float64(k.Last.Enqueued)/sparkStep.Seconds()),
		perSecond(float64(k.ended())/sparkStep.Seconds()))
}

// ended returns how many tasks have ended in the last step.
func (k *kindNow) ended() int64 { return k.Last.Succeeded + k.Last.Dead + k.Last.Cancelled }

// Trouble returns the trouble of the kind in one or two words, "" without any.
func (k *kindNow) Trouble() string {
	switch {
	case k.Pause != nil:
		return "paused"
	case k.Unhandled != nil && compareLevels(k.Unhandled.Level(), k.failureLevel()) <= 0 &&
		(k.Unhandled.Available > 0 || !k.IsStuck):
		return "no worker"
	case k.isFailing() && k.Healed() != "":
		return "recovering"
	case k.isFailing():
		return "failing"
	case k.IsStuck:
		return "stuck"
	case k.IsGrowing:
		return "growing"
	}
	return ""
}

// isFailing reports whether many attempts failed in the last step, or in the last hour unless the last step shows that
// it is over.
func (k *kindNow) isFailing() bool {
	return isFailing(k.Last) || isFailing(k.KindStats) && (k.Last.Failed > 0 || k.Last.Succeeded < failingLeast)
}

func isFailing(s projector.KindStats) bool {
	return s.Failed >= failingLeast && float64(s.Failed) >= failingShare*float64(s.Succeeded+s.Failed)
}

// findDelay sets IsStuck, and IsGrowing: workers handle the kind, and more of its tasks arrive than end.
func (k *kindNow) findDelay(at time.Time) {
	k.IsStuck = !k.RunningAt.IsZero() && k.Running.Count() > 0 && at.Sub(k.RunningAt) >= k.silence()
	k.IsGrowing = k.Workers > 0 && k.Pause == nil && k.Tasks.Available() >= growingLeast &&
		!k.OldestAt.IsZero() && at.Sub(k.OldestAt) >= growingAge && k.Last.Enqueued > k.ended()
}

// silence returns how long a task has had no event from which it may be stuck. At least one attempt has ended.
func (k *kindNow) silence() time.Duration {
	slow := k.Running.Quantile(0.99)
	least := max(stuckAge, stuckTimes*slow)
	if k.Running.Count() >= quickLeast {
		least = min(least, max(quickAge, quickTimes*slow))
	}
	return least
}

// failureLevel returns how bad the troubles of the kind with workers are.
func (k *kindNow) failureLevel() level {
	switch {
	case k.isFailing():
		return k.level()
	case k.IsStuck, k.IsGrowing:
		return warning
	}
	return fine
}

// level returns how bad it is that the kind fails.
func (k *kindNow) level() level {
	switch {
	case k.Healed() != "":
		return note
	case k.KindStats.Dead > 0:
		return critical
	}
	return warning
}

// Mark returns the class of the word for the trouble, as that of its card.
func (k *kindNow) Mark() level {
	switch k.Trouble() {
	case "failing", "recovering":
		return k.level()
	case "paused":
		return paused
	case "no worker":
		return k.Unhandled.Level()
	}
	return warning
}

// worst returns the level of the worst trouble of the kind.
func (k *kindNow) worst() level {
	all := []level{k.failureLevel()}
	if k.Unhandled != nil {
		all = append(all, k.Unhandled.Level())
	}
	if k.Pause != nil {
		all = append(all, paused)
	}
	return slices.MinFunc(all, compareLevels)
}

// rank returns a number for the order of kinds whose troubles have the same level.
func (k *kindNow) rank() int {
	switch {
	case k.Trouble() == "no worker":
		return 3
	case k.KindStats.Dead > 0:
		return 2
	case k.Tasks.Dead() > 0:
		return 1
	}
	return 0
}

func quantile(h projector.Histogram, q float64) string {
	if h.Count() == 0 {
		return "–"
	}
	return age(h.Quantile(q))
}

// percent returns a share as a text, "" of nothing.
func percent(n, of int64) string {
	switch {
	case of == 0 || n == 0:
		return ""
	case n*100 < of:
		return "< 1 %"
	}
	return fmt.Sprintf("%d %%", n*100/of)
}

func (h *Handler) showOverview(ctx context.Context, r *http.Request, v *view) error {
	d := &overviewData{IsLimited: v.Caller.IsLimited()}
	v.Data = d
	kinds, total, minutes, err := h.readKinds(ctx, v)
	if err != nil {
		return err
	}
	if err := h.addTroubles(ctx, v, d, kinds); err != nil {
		return err
	}
	n := newTroubleCounts(d.Troubles)
	v.troubles = &n
	h.keptTroubles(*v.Caller).set(n)
	if err := h.addErrors(ctx, d.Troubles); err != nil {
		return err
	}
	hours, _, err := h.readRates(ctx, v, tileHours)
	if err != nil {
		return err
	}
	quarters, _, err := h.readRates(ctx, v, tileQuarters)
	if err != nil {
		return err
	}
	d.Tiles = newTiles(v.At, total, minutes, hours, quarters)
	q := r.URL.Query()
	if d.Chart, err = h.makeChart(ctx, v, q.Get("range"), q.Get("by"), "", minutes); err != nil {
		return err
	}
	d.Own = len(kinds)
	maps.DeleteFunc(kinds, func(k ledger.Kind, _ *kindNow) bool { return reserved.IsKind(k) })
	d.Own -= len(kinds)
	d.Kinds, d.Others = worst(kinds)
	return nil
}

// readKinds returns the kinds that the caller may read, the sum of them, and the minutes of the last hour.
func (h *Handler) readKinds(ctx context.Context, v *view) (
	kinds map[ledger.Kind]*kindNow, total *kindNow, minutes []projector.KindStats, err error) {
	kinds, total = map[ledger.Kind]*kindNow{}, newKindNow("")
	kind := func(k ledger.Kind) *kindNow {
		if kinds[k] == nil {
			kinds[k] = newKindNow(k)
		}
		return kinds[k]
	}
	last := v.At.UTC().Truncate(time.Minute)
	all, err := h.readHour(ctx, last)
	if err != nil {
		return nil, nil, nil, err
	}
	from := last.Add(time.Minute - sparkSteps*sparkStep)
	for _, s := range all {
		if !v.Caller.MayUse(s.Kind) {
			continue
		}
		minutes = append(minutes, s)
		i := min(max(int(s.Minute.Sub(from)/sparkStep), 0), sparkSteps-1)
		if i == sparkSteps-1 {
			kind(s.Kind).addMinute(s)
		}
		for _, k := range []*kindNow{kind(s.Kind), total} {
			k.Add(s)
			if i == sparkSteps-1 {
				k.Last.Add(s)
			}
			k.Attempts[i] += float64(s.Succeeded + s.Failed)
			k.Failures[i] += float64(s.Failed)
		}
	}
	counts, err := h.pageCounts(ctx, v)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, n := range counts {
		kind(n.Kind).Tasks.add(n)
		total.Tasks.add(n)
	}
	oldest, running, err := projector.ReadOldest(ctx, h.config.DB)
	if err != nil {
		return nil, nil, nil, err
	}
	for k, at := range oldest {
		if v.Caller.MayUse(k) {
			kind(k).OldestAt = at
			if total.OldestAt.IsZero() || at.Before(total.OldestAt) {
				total.OldestAt, total.Kind = at, k
			}
		}
	}
	for k, at := range running {
		if v.Caller.MayUse(k) {
			kind(k).RunningAt = at
		}
	}
	paused, err := operator.ReadPaused(ctx, h.config.DB, "", lists.All)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, p := range paused {
		if v.Caller.MayUse(p.Kind) {
			kind(p.Kind).Pause = &p
		}
	}
	live, err := workers.ReadLiveCounts(ctx, h.config.DB)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := h.addResumptions(ctx, v.At, kinds); err != nil {
		return nil, nil, nil, err
	}
	unhandled, err := h.findUnhandled(ctx, v, live)
	if err != nil {
		return nil, nil, nil, err
	}
	for k, one := range kinds {
		one.Workers, one.Unhandled = live[k], unhandled[k]
		if reserved.IsKind(k) {
			one.Workers = max(1, one.Workers) // serve handles them
		}
		one.findDelay(v.At)
	}
	return kinds, total, minutes, nil
}

// addResumptions sets Resumed of the failing kinds: their failed attempts may be older.
func (h *Handler) addResumptions(ctx context.Context, at time.Time, kinds map[ledger.Kind]*kindNow) error {
	isAny := false
	for _, k := range kinds {
		isAny = isAny || k.isFailing()
	}
	if !isAny {
		return nil
	}
	resumed, err := operator.ReadResumed(ctx, h.config.DB, at.Add(-sparkStep))
	for _, r := range resumed {
		if k := kinds[r.Kind]; k != nil && k.isFailing() && k.Resumed == nil {
			k.Resumed = &r
		}
	}
	return err
}

// readHour returns the statistics of the hour that ends with a minute. The slice must not be changed.
func (h *Handler) readHour(ctx context.Context, last time.Time) ([]projector.KindStats, error) {
	return h.hour.Get(ctx, func(ctx context.Context) ([]projector.KindStats, bool, error) {
		all, err := projector.ReadKindStats(ctx, h.config.DB, "", last.Add(-59*time.Minute), last.Add(time.Minute))
		return all, len(all) >= manyRows, err
	})
}

// readRates returns the steps of a range with the values of some kinds, or of all that the caller may read, and whether
// these are all steps. The values of all kinds may be sums.
func (h *Handler) readRates(ctx context.Context, v *view, s span, kinds ...ledger.Kind) (
	all []projector.KindStats, isWhole bool, err error) {
	key := ratesKey{kinds: joinKinds(kinds), step: s.step, steps: s.steps}
	if len(kinds) == 0 && v.Caller.IsLimited() {
		key.caller = v.Caller.ID()
		if kinds, err = h.kinds(ctx, v.Caller); err != nil || len(kinds) == 0 {
			return nil, true, err
		}
	}
	return h.rates.of(key).read(ctx, h.config.DB, s.last(v.At), s.step, s.steps, kinds, maxRatesRead)
}

// joinKinds returns kinds in one text, the same in each order.
func joinKinds(kinds []ledger.Kind) string {
	var b strings.Builder
	for _, k := range slices.Sorted(slices.Values(kinds)) {
		b.WriteString(string(k) + "\x00")
	}
	return b.String()
}

// maxSeries is the number of kinds that a chart by kind shows. The last series are the others.
const maxSeries = 5

// makeChart returns the chart of attempts, by outcome or by kind, of a kind or of all that the caller may read. minutes
// is the last hour.
func (h *Handler) makeChart(ctx context.Context, v *view, name, by string, kind ledger.Kind,
	minutes []projector.KindStats) (chart, error) {
	s := findSpan(name)
	read := func(kinds ...ledger.Kind) ([]projector.KindStats, bool, error) {
		if s.step > time.Minute {
			return h.readRates(ctx, v, s, kinds...)
		}
		return slices.DeleteFunc(slices.Clone(minutes), func(m projector.KindStats) bool {
			return len(kinds) > 0 && !slices.Contains(kinds, m.Kind)
		}), true, nil
	}
	var only []ledger.Kind
	if kind != "" {
		only = []ledger.Kind{kind}
	}
	steps, isWhole, err := read(only...)
	if err != nil {
		return chart{}, err
	}
	values := func(all []projector.KindStats, of func(projector.KindStats) int64) []int64 {
		sums := make([]int64, s.steps)
		for _, one := range all {
			if i := int(one.Minute.Sub(s.first(v.At)) / s.step); i >= 0 && i < s.steps {
				sums[i] += of(one)
			}
		}
		return sums
	}
	attempts := func(s projector.KindStats) int64 { return s.Succeeded + s.Failed }
	var all []series
	if by == "kind" && kind == "" {
		others := values(steps, attempts)
		if most := mostOf(minutes, maxSeries); len(most) > 0 {
			byKind, isAll, err := read(most...)
			if err != nil {
				return chart{}, err
			}
			isWhole = isWhole && isAll
			for i, k := range most {
				of := values(byKind, func(s projector.KindStats) int64 {
					if s.Kind != k {
						return 0
					}
					return attempts(s)
				})
				for j, n := range of {
					others[j] = max(0, others[j]-n)
				}
				all = append(all, series{string(k), fmt.Sprintf("c%d", i), of})
			}
		}
		all = append(all, series{"others", "c5", others})
	} else {
		by = ""
		all = []series{
			{"succeeded", "good", values(steps, func(s projector.KindStats) int64 { return s.Succeeded })},
			{"failed", "bad", values(steps, func(s projector.KindStats) int64 { return s.Failed })}}
	}
	c := newChart("Attempts", s, v.At, h.config.Zone, all)
	c.IsPartial = !isWhole
	own := []any{"name", kind}
	for _, o := range spans {
		c.Ranges = append(c.Ranges, choice{"?" + string(query(append(own, "range", o.name, "by", by)...)), o.title,
			o.name == s.name})
	}
	if kind == "" {
		c.By = []choice{{"?" + string(query("range", s.name)), "by outcome", by == ""},
			{"?" + string(query("range", s.name, "by", "kind")), "by kind", by != ""}}
	}
	if !v.Caller.IsLimited() { // a start is not recorded by kind
		starts, err := readVersionStarts(ctx, h.config.DB, c.From, maxMarks)
		if err != nil {
			return chart{}, err
		}
		c.addMarks(starts, s.last(v.At).Add(s.step))
	}
	return c, nil
}

// mostOf returns the kinds with the most attempts, at most n.
func mostOf(minutes []projector.KindStats, n int) []ledger.Kind {
	sums := map[ledger.Kind]int64{}
	for _, s := range minutes {
		sums[s.Kind] += s.Succeeded + s.Failed
	}
	all := slices.SortedFunc(maps.Keys(sums), func(a, b ledger.Kind) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b))
	})
	return all[:min(len(all), n)]
}

// worst returns at most maxKinds kinds, see byTrouble. It also returns how many others there are, because a producer
// can create any number of kinds.
func worst(kinds map[ledger.Kind]*kindNow) (shown []*kindNow, others int) {
	all := byTrouble(kinds)
	n := min(len(all), maxKinds)
	return all[:n], len(all) - n
}

// byTrouble returns the kinds in order: those in trouble first, then those with the most attempts.
func byTrouble(kinds map[ledger.Kind]*kindNow) []*kindNow {
	return slices.SortedFunc(maps.Values(kinds), func(a, b *kindNow) int {
		return cmp.Or(compareLevels(a.worst(), b.worst()), cmp.Compare(b.rank(), a.rank()),
			cmp.Compare(b.Failed, a.Failed),
			cmp.Compare(b.Tasks.Dead(), a.Tasks.Dead()), cmp.Compare(b.Tasks.Available(), a.Tasks.Available()),
			cmp.Compare(b.Succeeded, a.Succeeded), cmp.Compare(a.Kind, b.Kind))
	})
}
