package alarm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// baseline is everything that was reported to a receiver. News is the difference to it.
type baseline struct {
	Dead   map[ledger.Kind]deadCount `json:"dead,omitempty"`
	Missed map[string]time.Time      `json:"missed,omitempty"` // by schedule: when firings were last passed over
	Open   map[string]openCondition  `json:"open,omitempty"`   // conditions that held, by what and about
}

// deadCount is the dead tasks of a kind.
type deadCount struct {
	Tasks  int64     `json:"tasks"`
	Newest time.Time `json:"newest"` // when the last one died
}

// openCondition is a condition that was reported and not yet reported as over.
type openCondition struct {
	Since      time.Time `json:"since"`
	ReportedAt time.Time `json:"reported_at"` // the last time
}

// news returns what differs from a baseline, and the baseline after it was reported. It is a pure function.
func (b baseline) news(o observation, r Rules) (items []Item, next baseline) {
	next = baseline{
		Dead: make(map[ledger.Kind]deadCount), Missed: make(map[string]time.Time), Open: make(map[string]openCondition),
	}
	items = append(items, b.deaths(o, r, next)...)
	for _, s := range o.missed {
		next.Missed[s.Name] = s.At
		if s.At.After(b.Missed[s.Name]) {
			items = append(items, Item{
				What: WhatScheduleMissed, About: s.Name, Status: StatusNew, Since: s.At,
				Text: fmt.Sprintf("schedule %s has passed over firings, %s so far", s.Name, printable.Count(s.Passed)),
			})
		}
	}
	items = append(items, b.openConditions(o, r, next)...)
	return append(items, b.closedConditions(r, next)...), next
}

// deaths returns the kinds with new dead tasks, and adds the dead tasks of all kinds to next.
func (b baseline) deaths(o observation, r Rules, next baseline) (items []Item) {
	groups := make(map[ledger.Kind][]operator.DeadGroup)
	for _, g := range o.dead {
		if !slices.Contains(r.IgnoreDead, g.Kind) {
			groups[g.Kind] = append(groups[g.Kind], g)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(groups)) {
		before, now := b.Dead[kind], deadCount{}
		for _, g := range groups[kind] {
			now.Tasks += g.Tasks
			if g.Newest.After(now.Newest) {
				now.Newest = g.Newest
			}
		}
		next.Dead[kind] = now
		// A task that died earlier may be projected later, so a greater number is news too.
		if !now.Newest.After(before.Newest) && now.Tasks <= before.Tasks {
			continue
		}
		item := Item{
			What: WhatDead, About: string(kind), Status: StatusNew, Tasks: now.Tasks,
			Text: deathText(kind, before, now),
		}
		for _, g := range groups[kind] {
			if len(item.Groups) < maxOfOne && (g.Newest.After(before.Newest) || !now.Newest.After(before.Newest)) {
				item.Groups = append(item.Groups, Group{g.Fingerprint, g.Tasks, g.Newest, g.Example, truncate(g.Error)})
			}
		}
		items = append(items, item)
	}
	return items
}

func deathText(kind ledger.Kind, before, now deadCount) string {
	verb := "are"
	if now.Tasks == 1 {
		verb = "is"
	}
	text := fmt.Sprintf("%s of kind %s %s dead", formatTasks(now.Tasks), kind, verb)
	switch more := now.Tasks - before.Tasks; {
	case before.Tasks == 0:
	case more > 0:
		text += fmt.Sprintf(", %s more than reported before", printable.Count(more))
	default:
		text += ", some of them newly"
	}
	return text
}

func truncate(s string) string {
	if len(s) > maxError {
		s = s[:maxError] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// openConditions returns the conditions that hold and are new, or are to be reported again. It adds all conditions
// that hold to next.
func (b baseline) openConditions(o observation, r Rules, next baseline) (items []Item) {
	for _, c := range o.holds {
		key := string(c.Name) + " " + c.About
		open, isReported := b.Open[key]
		item := Item{What: string(c.Name), About: c.About, Text: c.Text, Cure: c.Cure}
		switch {
		case !isReported:
			open = openCondition{Since: c.Since, ReportedAt: o.now}
			if open.Since.IsZero() {
				open.Since = o.now
			}
			item.Status = StatusNew
		case r.Remind > 0 && o.now.Sub(open.ReportedAt) >= time.Duration(r.Remind):
			open.ReportedAt = o.now
			item.Status, item.Text = StatusHolds, "still: "+item.Text
		}
		item.Since = open.Since
		next.Open[key] = open
		if item.Status != "" {
			items = append(items, item)
		}
	}
	return items
}

// closedConditions returns the reported conditions that no longer hold. It reports none whose rule was removed.
func (b baseline) closedConditions(r Rules, next baseline) (items []Item) {
	for _, key := range slices.Sorted(maps.Keys(b.Open)) {
		what, about, _ := strings.Cut(key, " ")
		if _, holds := next.Open[key]; holds || !r.has(what, about) {
			continue
		}
		items = append(items, Item{
			What: what, About: about, Status: StatusOver, Since: b.Open[key].Since, Text: overText(what, about),
		})
	}
	return items
}

func overText(what, about string) string {
	switch what {
	case WhatDeadOver:
		return "over: the dead tasks of kind " + about + " are within their limit"
	case WhatWaitingOver:
		return "over: no task of kind " + about + " has been waiting too long"
	}
	text := "over: "
	if about != "" {
		text += about + ": "
	}
	d, _ := health.Define(health.Name(what))
	return text + d.End
}
