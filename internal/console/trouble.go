package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/projector"
)

const (
	// maxTroubles is the number of troubles of one sort; the lists show the others.
	maxTroubles = 5
	// maxErrorShown is the number of characters of an error.
	maxErrorShown = 160
	// maxSchedules is the number of schedules among which the paused ones are found.
	maxSchedules = 1000
)

// level is how bad a trouble or the state of a service is. It is a class of the style, and the word on the page.
type level string

// The levels, the worst first. A pause is deliberate.
const (
	critical level = "critical"
	warning  level = "warning"
	note     level = "note"
	paused   level = "paused"
	fine     level = "ok"
)

// levels are all levels in their order.
var levels = []level{critical, warning, note, paused, fine}

// compareLevels orders the worst level first.
func compareLevels(a, b level) int {
	return cmp.Compare(slices.Index(levels, a), slices.Index(levels, b))
}

// levelOf returns the level of a condition that holds.
func levelOf(c health.Condition) level {
	if c.IsCritical() {
		return critical
	}
	return warning
}

// trouble is a sentence about a fault, with links to its cure.
type trouble struct {
	Level      level
	Name       string // of the condition; "" for another trouble
	About      string // what the condition is about
	Text, Cure string
	Error      string // of a task that it concerns; "": none, or see failing
	Since      time.Time
	Links      []choice
	Key        string   // of the sentence, so that an update keeps an open form under its own one
	Kind       *kindNow // that the caller may pause or resume here; nil: none
	Schedule   string   // that the caller may resume here; "": none
	Subscriber string   // that the caller may resume here; "": none
	Pause      *pause   // that the caller may end here; nil: none, or no record of it is found
	failing    *kindNow // of whose tasks addErrors adds an error; nil: none
}

// FirstCure returns the beginning of the cure, which is enough in most cases.
func (t trouble) FirstCure() string {
	first, _, _ := strings.Cut(t.Cure, "; ")
	return first
}

// OtherCures returns the rest of the cure.
func (t trouble) OtherCures() string {
	_, others, _ := strings.Cut(t.Cure, "; ")
	return others
}

// addTroubles adds the conditions that hold, and the troubles of kinds.
func (h *Handler) addTroubles(ctx context.Context, v *view, d *overviewData, kinds map[ledger.Kind]*kindNow) error {
	if !d.IsLimited { // conditions name all kinds
		report, err := h.readReport(ctx)
		if err != nil {
			d.Unread = h.explain((&http.Request{}).WithContext(ctx), err).title
		}
		for _, c := range report.Degraded {
			if c.Name == health.TasksUnbegun && isExplained(report.Unbegun, kinds) {
				continue // the sentences about its kinds name the cause
			}
			d.Troubles = append(d.Troubles, newTrouble(v.Base, c, report))
		}
	}
	if err := h.addSubscriberPauses(ctx, d.Troubles); err != nil {
		return err
	}
	addUnhandled(v, d, kinds)
	var failing, stuck, growing, halted []*kindNow
	for _, k := range kinds {
		if k.isFailing() {
			failing = append(failing, k)
		}
		if k.IsStuck {
			stuck = append(stuck, k)
		}
		if k.IsGrowing {
			growing = append(growing, k)
		}
		if k.Pause != nil {
			halted = append(halted, k)
		}
	}
	slices.SortFunc(failing, func(a, b *kindNow) int { return cmp.Compare(b.Failed, a.Failed) })
	slices.SortFunc(stuck, func(a, b *kindNow) int { return a.RunningAt.Compare(b.RunningAt) })
	slices.SortFunc(growing, func(a, b *kindNow) int { return cmp.Compare(b.Tasks.Available(), a.Tasks.Available()) })
	slices.SortFunc(halted, func(a, b *kindNow) int { return a.Pause.Since.Compare(b.Pause.Since) })
	for _, k := range failing[:min(len(failing), maxTroubles)] {
		verb, healed := "is", k.Healed()
		if healed != "" {
			verb, healed = "was", "; "+healed
		}
		text := fmt.Sprintf("%s %s failing: %s attempts in the last 5 minutes", k.Kind, verb, k.Recent())
		if hour := share(k.KindStats); hour != k.Recent() {
			text += fmt.Sprintf(", %s in the last hour", hour)
		}
		if k.KindStats.Dead > 0 {
			text += fmt.Sprintf("; %s died", tasks(int(k.KindStats.Dead)))
		}
		text += healed + "."
		cure := ""
		if k.Resumed != nil && k.Pause == nil && k.Healed() == "" {
			text = fmt.Sprintf("%s was resumed %s ago by %s. Before that, %s attempts failed in 5 minutes.", k.Kind,
				age(v.At.Sub(k.Resumed.At)), k.Resumed.Actor, k.Recent())
			cure = "Wait for its next attempts. Once they succeed, release the dead tasks on Failures; " +
				"else pause the kind again."
		}
		d.Troubles = append(d.Troubles, trouble{Level: k.level(), Text: text, Cure: cure, Kind: unpaused(k), failing: k,
			Links: []choice{
				{Query: v.Base + "failures?" + string(query("kind", k.Kind)), Text: "Show failures"},
				{Query: v.Base + string(kindPath(k.Kind)), Text: "Show the kind"}}})
	}
	for _, k := range stuck[:min(len(stuck), maxTroubles)] {
		one, err := h.stuckTrouble(ctx, v, k)
		if err != nil {
			return err
		}
		d.Troubles = append(d.Troubles, one)
	}
	for _, k := range growing[:min(len(growing), maxTroubles)] {
		one, err := h.growingTrouble(ctx, v, k)
		if err != nil {
			return err
		}
		d.Troubles = append(d.Troubles, one)
	}
	for _, k := range halted[:min(len(halted), maxTroubles)] {
		text := fmt.Sprintf("%s is paused by %s: %s", k.Kind, k.Pause.Actor, k.Pause.Reason)
		if n := k.Tasks.Available(); n > 0 {
			text += fmt.Sprintf(" (%s waiting)", tasks(int(n)))
		}
		d.Troubles = append(d.Troubles, trouble{Level: paused, Text: text, Since: k.Pause.Since, Kind: k,
			Pause: k.Paused(), Links: []choice{{Query: v.Base + string(kindPath(k.Kind)), Text: "Show the kind"}}})
	}
	if err := h.addPausedSchedules(ctx, v, d); err != nil {
		return err
	}
	if !d.IsLimited {
		h.addChecks(v, d) // below failing kinds
	}
	slices.SortStableFunc(d.Troubles, func(a, b trouble) int { return compareLevels(a.Level, b.Level) })
	for i := range d.Troubles {
		t := &d.Troubles[i]
		switch {
		case t.Key != "":
		case t.Kind != nil:
			t.Key = "kind " + string(t.Kind.Kind)
		case t.Schedule != "":
			t.Key = "schedule " + t.Schedule
		case t.Name == "":
			t.Key, _, _ = strings.Cut(t.Text, ":")
		default:
			t.Key = strings.TrimSpace("condition " + t.Name + " " + t.About)
		}
	}
	return nil
}

// unpaused returns the kind, nil if it is paused: then there is a sentence about the pause.
func unpaused(k *kindNow) *kindNow {
	if k.Pause != nil {
		return nil
	}
	return k
}

// isExplained reports whether the backlog of each of these kinds grows, for which there is a sentence.
func isExplained(unbegun []operator.UnbegunKind, kinds map[ledger.Kind]*kindNow) bool {
	return !slices.ContainsFunc(unbegun, func(u operator.UnbegunKind) bool {
		return kinds[u.Kind] == nil || !kinds[u.Kind].IsGrowing
	})
}

// stuckTrouble returns a sentence about running tasks without news, with their worker.
func (h *Handler) stuckTrouble(ctx context.Context, v *view, k *kindNow) (trouble, error) {
	silent, err := projector.ReadSilent(ctx, h.config.DB, k.Kind, v.At.Add(-k.silence()))
	if err != nil {
		return trouble{}, err
	}
	text := fmt.Sprintf("A task of %s has run without news for %s", k.Kind, age(v.At.Sub(k.RunningAt)))
	cure := "Restart its worker if the handler hangs: another worker then takes the task over. "
	filter := []any{"kind", k.Kind, "state", ledger.StateRunning}
	if len(silent) > 0 {
		n := int64(0)
		for _, s := range silent {
			n += s.Tasks
		}
		if n > 1 {
			text = fmt.Sprintf("%s of %s have run without news, the longest for %s", tasks(int(n)), k.Kind,
				age(v.At.Sub(silent[0].Since)))
		}
		if text += ", on " + silent[0].Worker; len(silent) > 1 {
			text += fmt.Sprintf(" and %d others", len(silent)-1)
		} else {
			filter = append(filter, "worker", silent[0].Worker)
		}
	}
	return trouble{Level: warning, Text: text + fmt.Sprintf("; 99 %% of its attempts take at most %s.", k.Runs(0.99)),
		Cure: cure + "Or cancel the task, and release it.",
		Links: []choice{{Query: v.Base + "tasks?" + string(query(filter...)), Text: "Show running tasks"},
			{Query: v.Base + "workers", Text: "Show workers"}}}, nil
}

// mostShare is the share of the newest tasks of a kind from which their actor is named.
const mostShare = 0.5

// growingTrouble returns a sentence about a backlog, with the actor of most new tasks.
func (h *Handler) growingTrouble(ctx context.Context, v *view, k *kindNow) (trouble, error) {
	recent, err := h.recent.Get(ctx, h.readRecent)
	if err != nil {
		return trouble{}, err
	}
	text := fmt.Sprintf("The backlog of %s grows: %s wait, the oldest for %s; %s.", k.Kind,
		tasks(int(k.Tasks.Available())), age(v.At.Sub(k.OldestAt)), k.Growth())
	filter := []any{"kind", k.Kind, "state", ledger.StateAvailable}
	sums, all := map[string]int{}, 0
	for _, r := range recent {
		if r.kind == k.Kind {
			sums[r.actor]++
			all++
		}
	}
	for actor, n := range sums {
		if float64(n) > mostShare*float64(all) {
			text += fmt.Sprintf(" %d of the newest %d are by %s.", n, all, actor)
			filter = append(filter, "actor", actor)
		}
	}
	return trouble{Level: warning, Text: text, Kind: unpaused(k),
		Cure: "Start more workers of the kind, or give it more slots; pause or cancel less urgent tasks.",
		Links: []choice{{Query: v.Base + "tasks?" + string(query(filter...)), Text: "Show waiting tasks"},
			{Query: v.Base + string(kindPath(k.Kind)), Text: "Show the kind"},
			{Query: v.Base + "workers", Text: "Show workers"}}}, nil
}

// addErrors adds the errors of failing kinds.
func (h *Handler) addErrors(ctx context.Context, all []trouble) (err error) {
	for i := range all {
		if t := &all[i]; t.failing != nil {
			if t.Error, err = h.errorOf(ctx, t.failing); err != nil {
				return err
			}
		}
	}
	return nil
}

// errorOf returns the error of a task of a failing kind: of a retrying task, else of a dead one.
func (h *Handler) errorOf(ctx context.Context, k *kindNow) (string, error) {
	for _, state := range []ledger.State{ledger.StateRetrying, ledger.StateDead} {
		found, _, err := projection.FindTasks(ctx, h.config.DB, projection.Search{Kind: k.Kind, State: state, Limit: 1})
		if err != nil {
			return "", err
		}
		if len(found) > 0 && found[0].Error != "" {
			return printable.Short(found[0].Error, maxErrorShown), nil
		}
	}
	return "", nil
}

// addSubscriberPauses adds the records of the pauses of subscribers. A pause with a reason is deliberate: its sentence
// then advises nothing.
func (h *Handler) addSubscriberPauses(ctx context.Context, all []trouble) error {
	var names []string
	for _, t := range all {
		if t.Subscriber != "" {
			names = append(names, t.Subscriber)
		}
	}
	pauses, err := h.readPauses(ctx, names)
	for i := range all {
		t := &all[i]
		if t.Pause = pauses[t.Subscriber]; t.Pause == nil {
			continue
		}
		t.Since = time.Time{} // of the lag; the pause has its own
		if t.Pause.Reason != "" {
			t.Cure = ""
		}
	}
	return err
}

// IsDeliberate reports whether the trouble is a pause with a reason.
func (t trouble) IsDeliberate() bool { return t.Pause != nil && t.Pause.Reason != "" }

// addPausedSchedules adds the paused schedules among the first ones, the longest pause first.
func (h *Handler) addPausedSchedules(ctx context.Context, v *view, d *overviewData) error {
	all, err := periodic.ReadSchedules(ctx, h.config.DB, "", maxSchedules)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s periodic.Status) bool { return !s.Paused || !v.Caller.MayUse(s.Schedule.Kind) })
	slices.SortFunc(all, func(a, b periodic.Status) int { return a.PausedAt.Compare(b.PausedAt) })
	for _, s := range all[:min(len(all), maxTroubles)] {
		text := fmt.Sprintf("Schedule %s is paused by %s", s.Schedule.Name, s.PausedBy)
		if s.PauseReason != "" {
			text += ": " + s.PauseReason
		}
		d.Troubles = append(d.Troubles, trouble{Level: paused, Text: text, Since: s.PausedAt,
			Schedule: s.Schedule.Name, Pause: schedulePause(s),
			Links: []choice{{Query: v.Base + "schedules", Text: "Show schedules"}}})
	}
	return nil
}

// newTrouble returns a condition as a sentence with links.
func newTrouble(base string, c health.Condition, r health.Report) trouble {
	text := c.Text
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:] + "."
	}
	t := trouble{Level: levelOf(c), Name: string(c.Name), About: c.About, Text: text, Cure: c.Cure,
		Since: c.Since}
	link := func(path, text string) { t.Links = append(t.Links, choice{Query: base + path, Text: text}) }
	switch c.Name {
	case health.KindUnhandled:
		if len(r.Unhandled) == 1 {
			link("tasks?"+string(query("kind", r.Unhandled[0].Kind, "state", ledger.StateAvailable)), "Show tasks")
		}
		link("tasks?state=available", "Show waiting tasks")
		t.Links = t.Links[:1]
		link("workers", "Show workers")
	case health.TasksUnbegun:
		if len(r.Unbegun) > 0 {
			link("tasks?"+string(query("kind", r.Unbegun[0].Kind, "state", ledger.StateAvailable)), "Show tasks")
		}
		link("workers", "Show workers")
	case health.AttemptsRepeated, health.SnoozedInARow:
		link("tasks?state=running", "Show running tasks")
	case health.LinesStopped:
		for _, l := range r.StoppedLines[:min(len(r.StoppedLines), 3)] {
			link(string(taskPath(l.Key)), "Show "+l.Key.String())
		}
	case health.TimersLate:
		link("tasks?state=scheduled", "Show scheduled tasks")
	case health.ScheduleLate:
		link("schedules", "Show schedules")
	case health.SubscriberBehind, health.WebhookStopped:
		for _, s := range r.Subscribers {
			if c.Name == health.SubscriberBehind && s.Name == c.About && s.IsPaused {
				t.Subscriber = s.Name
			}
		}
		link("subscribers", "Show subscribers")
	case health.AlarmUndelivered:
		link("tasks?"+string(query("kind", health.AlarmKind)), "Show alarms")
	case health.OperationOpen:
		link("tasks?"+string(query("kind", ledger.Kind(reserved.KindPrefix+"operation"))), "Show operations")
	default: // of the services
		link("system", "Show services")
	}
	return t
}
