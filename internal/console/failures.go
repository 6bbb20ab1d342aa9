package console

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

const (
	// maxGroup is the number of tasks that one form releases at most, and maxEnded that it ends: each in a transaction.
	maxGroup, maxEnded = 5000, 500
	// leastBar is the length of the shortest bar, in percent of the longest.
	leastBar = 3
	// pageGroups is the number of groups of dead tasks of a page.
	pageGroups = 25
	// maxRetryingKinds is the number of kinds whose retrying tasks are read, those with the most of them.
	maxRetryingKinds = 10
	// maxRetrying is the number of retrying tasks of a kind that are read.
	maxRetrying = 200
)

// failuresData is the content of the page Failures.
type failuresData struct {
	Kind   ledger.Kind // only its groups; "": all
	Groups []*failureGroup
	Tasks  stateCounts  // of all kinds that the caller may read, or of Kind
	Next   template.URL // the query of the next page; "": this is the last
}

// failureGroup is the dead and retrying tasks of a kind whose errors are alike.
type failureGroup struct {
	Kind         ledger.Kind
	Fingerprint  string // of the dead tasks; "" without any
	Message      string // of the errors, without the parts that vary
	Error        string // of the newest task
	Dead         int64
	IsMore       bool      // there are more dead tasks
	Hours        [24]int64 // how many tasks failed for the last time in each hour, up to the current one
	Retrying     int64
	IsManyRetry  bool // there may be more retrying tasks
	First, Last  time.Time
	Example      ledger.Key   // the newest task
	DeadExample  ledger.Key   // the newest dead task
	Show         template.URL // the query of its tasks, without a state
	Spark        spark
	DeadPart     float64 // of the largest group, in percent
	RetryingPart float64
	Failing      *kindNow // the kind, if it fails now; nil: not
}

func (h *Handler) showFailures(ctx context.Context, r *http.Request, v *view) error {
	q := r.URL.Query()
	d := &failuresData{Kind: ledger.Kind(q.Get("kind")), Tasks: stateCounts{}}
	v.Data = d
	if d.Kind != "" && !v.Caller.MayUse(d.Kind) {
		return invalid("%s may not use this kind", v.Caller.Name())
	}
	hour := v.At.UTC().Truncate(time.Hour)
	since := hour.Add(-23 * time.Hour)
	search := operator.DeadSearch{Kind: d.Kind, Since: since,
		AfterFingerprint: q.Get("after_fingerprint"), AfterKind: ledger.Kind(q.Get("after_kind"))}
	isFirst := search.AfterFingerprint == ""
	groups, next, err := h.findDead(ctx, v.Caller, search)
	if err != nil {
		return err
	}
	if next != nil {
		d.Next = query("kind", d.Kind, "after_fingerprint", next.Fingerprint, "after_kind", next.Kind)
	}
	for _, g := range groups {
		d.Groups = append(d.Groups, &failureGroup{Kind: g.Kind, Fingerprint: g.Fingerprint, Error: g.Error,
			Dead: g.Tasks, IsMore: g.More, First: g.Oldest, Last: g.Newest, Example: g.Example,
			DeadExample: g.Example, Hours: g.Hours,
			Message: normalize(g.Error)})
	}
	if err := h.addRetrying(ctx, v, d, isFirst, since); err != nil {
		return err
	}
	failed, err := h.readFailed(ctx, d.Groups, since, hour.Add(time.Hour))
	if err != nil {
		return err
	}
	failing, err := h.findFailing(ctx, v.At, slices.Collect(maps.Keys(failed))...)
	if err != nil {
		return err
	}
	most := int64(0)
	for _, g := range d.Groups {
		most = max(most, g.Dead+g.Retrying)
	}
	for _, g := range d.Groups {
		g.complete(since, failed[g.Kind], most)
		g.Failing = failing[g.Kind]
	}
	slices.SortStableFunc(d.Groups, func(a, b *failureGroup) int {
		return cmp.Compare(b.Dead+b.Retrying, a.Dead+a.Retrying)
	})
	return nil
}

// readFailed returns the failed attempts of the kinds of groups, by the beginning of each whole hour.
func (h *Handler) readFailed(ctx context.Context, groups []*failureGroup, from, to time.Time) (
	failed map[ledger.Kind]map[time.Time]int64, err error) {
	failed = map[ledger.Kind]map[time.Time]int64{}
	for _, g := range groups {
		failed[g.Kind] = map[time.Time]int64{}
	}
	if len(failed) == 0 {
		return failed, nil
	}
	rates, err := projector.ReadRates(ctx, h.config.DB, from, to, time.Hour, slices.Sorted(maps.Keys(failed))...)
	for _, r := range rates {
		failed[r.Kind][r.Minute] = r.Failed
	}
	return failed, err
}

// findDead returns a page of the groups of dead tasks that the caller may read, and the last one if others follow.
func (h *Handler) findDead(ctx context.Context, c *api.Caller, search operator.DeadSearch) (
	groups []operator.DeadGroup, last *operator.DeadGroup, err error) {
	for hasMore := true; hasMore && len(groups) <= pageGroups; {
		found, more, err := operator.FindDead(ctx, h.config.DB, search)
		if err != nil {
			return nil, nil, err
		}
		hasMore = more
		for _, g := range found {
			search.AfterFingerprint, search.AfterKind = g.Fingerprint, g.Kind
			if c.MayUse(g.Kind) {
				groups = append(groups, g)
			}
		}
		if !c.IsLimited() && hasMore { // the last group may be named
			return groups, &operator.DeadGroup{Fingerprint: search.AfterFingerprint, Kind: search.AfterKind}, nil
		}
	}
	if len(groups) > pageGroups {
		return groups[:pageGroups], &groups[pageGroups-1], nil
	}
	return groups, nil, nil
}

// addRetrying adds the numbers of tasks, and retrying tasks to the groups. On the first page it adds groups without
// dead tasks. since begins the hours of the groups.
func (h *Handler) addRetrying(ctx context.Context, v *view, d *failuresData, isFirst bool, since time.Time) error {
	counts, err := h.pageCounts(ctx, v)
	if err != nil {
		return err
	}
	var retrying []ledger.StateCount
	for _, n := range counts {
		if d.Kind != "" && n.Kind != d.Kind {
			continue
		}
		d.Tasks.add(n)
		if n.State == ledger.StateRetrying {
			retrying = append(retrying, n)
		}
	}
	slices.SortFunc(retrying, func(a, b ledger.StateCount) int { return cmp.Compare(b.Tasks, a.Tasks) })
	known := map[[2]string]*failureGroup{}
	for _, g := range d.Groups {
		known[[2]string{string(g.Kind), g.Message}] = g
	}
	for _, n := range retrying[:min(len(retrying), maxRetryingKinds)] {
		found, next, err := projection.FindTasks(ctx, h.config.DB,
			projection.Search{Kind: n.Kind, State: ledger.StateRetrying, Limit: maxRetrying})
		if err != nil {
			return err
		}
		for _, t := range found {
			key := [2]string{string(t.Kind), normalize(t.Error)}
			g := known[key]
			if g == nil {
				if !isFirst {
					continue
				}
				g = &failureGroup{Kind: t.Kind, Message: key[1], First: t.UpdatedAt}
				known[key] = g
				d.Groups = append(d.Groups, g)
			}
			g.Retrying++
			if !t.UpdatedAt.Before(since) {
				g.Hours[min(int(t.UpdatedAt.Sub(since)/time.Hour), len(g.Hours)-1)]++
			}
			g.IsManyRetry = next != (ledger.Key{})
			if t.UpdatedAt.Before(g.First) {
				g.First = t.UpdatedAt
			}
			if !t.UpdatedAt.Before(g.Last) {
				g.Last, g.Error, g.Example = t.UpdatedAt, t.Error, t.Key
			}
		}
	}
	return nil
}

// changeGroup releases or cancels the dead tasks of a group, or retries or cancels its retrying tasks.
func (h *Handler) changeGroup(ctx context.Context, r *http.Request, c api.Caller, reason string) (result, error) {
	kind, fingerprint := ledger.Kind(r.PostForm.Get("kind")), r.PostForm.Get("fingerprint")
	if r.PostForm.Get("act") == "try" {
		key := ledger.Key{Kind: kind, BizID: ledger.BizID(r.PostForm.Get("biz_id"))}
		return h.tryOne(ctx, c, key, reason)
	}
	if message := r.PostForm.Get("message"); message != "" {
		return h.changeRetrying(ctx, r, c, kind, message, reason)
	}
	if kind == "" || fingerprint == "" {
		return result{}, invalid("a kind and a fingerprint are required")
	}
	if r.PostForm.Get("act") == "cancel" {
		return h.cancelGroup(ctx, c, kind, fingerprint, reason)
	}
	done, err := h.config.API.ReleaseGroup(ctx, c, kind, fingerprint, reason, maxGroup, false)
	text := fmt.Sprintf("%s of %s released.", tasks(done.Done), kind)
	if done.Skipped > 0 {
		text += fmt.Sprintf(" %s skipped: moved on, locked or erased.", tasks(done.Skipped))
	}
	return result{done: text}, err
}

// cancelGroup ends the dead tasks of a group, as many as one form may end.
func (h *Handler) cancelGroup(
	ctx context.Context, c api.Caller, kind ledger.Kind, fingerprint, reason string,
) (result, error) {
	done, err := h.config.API.CancelGroup(ctx, c, kind, fingerprint, reason, maxEnded)
	text := fmt.Sprintf("%s of %s cancelled: no worker begins them.", tasks(done.Done), kind)
	if done.Skipped > 0 {
		text += fmt.Sprintf(" %s skipped: moved on, locked or erased.", tasks(done.Skipped))
	}
	if done.Found == maxEnded {
		text += " Others may be left: send the form again."
	}
	return result{done: text}, err
}

// tryOne releases a task of a group, whose page then shows whether the cause is mended.
func (h *Handler) tryOne(ctx context.Context, c api.Caller, key ledger.Key, reason string) (result, error) {
	if err := key.ValidateStored(); err != nil {
		return result{}, err
	}
	if err := h.config.API.ChangeTask(ctx, c, key, api.Release, reason); err != nil {
		return result{}, err
	}
	text := "This task alone was released. Once it has succeeded, release the others on Failures."
	kinds, err := operator.ReadPaused(ctx, h.config.DB, "", lists.All)
	if slices.ContainsFunc(kinds, func(p operator.PausedKind) bool { return p.Kind == key.Kind }) {
		text = fmt.Sprintf("This task alone was released. %s is paused: it begins when the kind is resumed.", key.Kind)
	}
	return result{done: text, task: key}, err
}

// changeRetrying retries now, or cancels, the retrying tasks of a kind whose errors have a message, as
// many as one form may change.
func (h *Handler) changeRetrying(
	ctx context.Context, r *http.Request, c api.Caller, kind ledger.Kind, message, reason string,
) (result, error) {
	i := slices.IndexFunc(acts, func(a act) bool { return string(a.Name) == r.PostForm.Get("act") })
	d := &bulkData{Kind: kind, State: ledger.StateRetrying, message: message, Reason: reason}
	switch {
	case i < 0 || !acts[i].allows(d.State):
		return result{}, invalid("act must be release, bury or cancel")
	case kind == "":
		return result{}, invalid("a kind is required")
	}
	d.Act = acts[i]
	if err := c.MayChange(kind); err != nil {
		return result{}, err
	}
	if err := h.changeAll(ctx, r, c, d); err != nil {
		return result{}, err
	}
	done := map[api.Change]string{api.Release: "released", api.Bury: "buried", api.Cancel: "cancelled"}[d.Act.Name]
	text := fmt.Sprintf("%s of %s %s.", tasks(d.Changed), kind, done)
	if d.Skipped > 0 {
		text += fmt.Sprintf(" %s moved on before.", tasks(d.Skipped))
	}
	if d.IsMore {
		text += " Others are left: " + cmp.Or(d.Problem, "send the form again.")
	}
	return result{done: text}, nil
}

// complete sets the derived fields. failed is the failed attempts of the kind by hour. The sparkline shows when the
// group's tasks failed last, within all failures of the kind. most is the number of tasks of the largest group.
func (g *failureGroup) complete(since time.Time, failed map[time.Time]int64, most int64) {
	all := g.Dead + g.Retrying
	bar := max(leastBar, 100*float64(all)/float64(max(1, most)))
	g.DeadPart = bar * float64(g.Dead) / float64(max(1, all))
	g.RetryingPart = bar - g.DeadPart
	g.Show = query("kind", g.Kind, "error", longestPart(g.Message))
	var whole, own [len(g.Hours)]float64
	attempts := int64(0)
	for i, n := range g.Hours {
		of := failed[since.Add(time.Duration(i)*time.Hour)]
		whole[i], own[i] = float64(max(of, n)), float64(n)
		attempts += of
	}
	g.Spark = newSpark(fmt.Sprintf("%s failed attempts of %s in the last 24 h; red: the last ones of this group",
		printable.Count(attempts), g.Kind), whole[:], own[:])
}

// statusPattern matches a status in an error, which does not vary from task to task.
const statusPattern = `(?i:status|code|http)(?:[ :=]|[Cc]ode|/[0-9.]+)*[1-5][0-9]{2}\b`

var status = regexp.MustCompile(`^(?:` + statusPattern + `)$`)

// variable is a status, or a part of an error that varies from task to task: a quoted text, or words with digits.
var variable = regexp.MustCompile(statusPattern + `|"[^"]*"|'[^']*'|[\pL_]*\d[\pL\d_]*(?:-[\pL_]*\d[\pL\d_]*)*`)

// variablePart stands for a part that varies.
const variablePart = "•"

// normalize returns an error without its type and without the parts that vary.
func normalize(text string) string {
	const most = 400
	text = text[:min(len(text), most)]
	text = variable.ReplaceAllStringFunc(strings.ToValidUTF8(text, ""), func(part string) string {
		if isStatus(part) {
			return part
		}
		return variablePart
	})
	return strings.Join(strings.Fields(text), " ")
}

// isStatus reports whether a match of variable is a status, such as "status 401": it distinguishes errors, as in
// [ledger.Fingerprint].
func isStatus(part string) bool { return status.MatchString(part) }

// markVariable returns the beginning of an error, in which the parts that vary from task to task are marked.
func markVariable(limit int, text string) template.HTML {
	text = printable.Short(text, limit)
	var b strings.Builder
	from := 0
	for _, at := range variable.FindAllStringIndex(text, -1) {
		part := text[at[0]:at[1]]
		if isStatus(part) {
			continue
		}
		b.WriteString(template.HTMLEscapeString(text[from:at[0]]))
		b.WriteString("<var>" + template.HTMLEscapeString(part) + "</var>")
		from = at[1]
	}
	return template.HTML(b.String() + template.HTMLEscapeString(text[from:]))
}

// longestPart returns the longest part of a normalized error that does not vary, for a search.
func longestPart(message string) (longest string) {
	for part := range strings.SplitSeq(message, variablePart) {
		if part = strings.TrimSpace(part); len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}
