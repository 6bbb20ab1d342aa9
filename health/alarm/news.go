package alarm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/workers"
)

// observation is what a watcher sees at one time.
type observation struct {
	now       time.Time // by the database's clock
	dead      []workers.DeadGroup
	schedules []periodic.Status
	holds     []condition
}

// condition is one that holds.
type condition struct{ what, about, text string }

func (c condition) key() string { return c.what + " " + c.about }

// known is what a receiver knows once it has an alarm.
type known struct {
	Dead   map[ledger.Kind]deadKnown `json:"dead,omitempty"`
	Missed map[string]time.Time      `json:"missed,omitempty"` // by schedule: when slots were last found to be missed
	Open   map[string]openKnown      `json:"open,omitempty"`   // conditions that held
}

type deadKnown struct {
	Tasks  int64     `json:"tasks"`
	Newest time.Time `json:"newest"` // when the last one died
}

type openKnown struct {
	Since time.Time `json:"since"`
	Told  time.Time `json:"told"`
}

// news returns what somebody should be told who knows this, and what it knows then. It is pure.
func (k known) news(o observation, r Rules) (items []Item, next known) {
	next = known{Dead: make(map[ledger.Kind]deadKnown), Missed: make(map[string]time.Time), Open: make(map[string]openKnown)}
	items = append(items, k.deaths(o, r, next)...)
	for _, s := range o.schedules {
		if !s.PassedAt.IsZero() {
			next.Missed[s.Schedule.Name] = s.PassedAt
		}
		if s.PassedAt.After(k.Missed[s.Schedule.Name]) {
			items = append(items, Item{What: WhatScheduleMissed, About: s.Schedule.Name, Status: StatusNew, Since: s.PassedAt,
				Text: fmt.Sprintf("schedule %s has passed slots over, %s so far", s.Schedule.Name, printable.Count(s.Passed))})
		}
	}
	return append(items, k.conditions(o, r, next)...), next
}

func (k known) deaths(o observation, r Rules, next known) (items []Item) {
	groups := make(map[ledger.Kind][]workers.DeadGroup)
	for _, g := range o.dead {
		if !slices.Contains(r.IgnoreDead, g.Kind) {
			groups[g.Kind] = append(groups[g.Kind], g)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(groups)) {
		before, now := k.Dead[kind], deadKnown{}
		for _, g := range groups[kind] {
			now.Tasks += g.Tasks
			if g.Newest.After(now.Newest) {
				now.Newest = g.Newest
			}
		}
		next.Dead[kind] = now
		// Of those that died since, the newest is newer, or there are more: one that was recorded
		// earlier may be projected later.
		if !now.Newest.After(before.Newest) && now.Tasks <= before.Tasks {
			continue
		}
		item := Item{What: WhatDead, About: string(kind), Status: StatusNew, Tasks: now.Tasks, Text: deathText(kind, before, now)}
		for _, g := range groups[kind] {
			if len(item.Groups) < maxOfOne && (g.Newest.After(before.Newest) || !now.Newest.After(before.Newest)) {
				item.Groups = append(item.Groups, Group{g.Fingerprint, g.Tasks, g.Newest, g.Example, cut(g.Error)})
			}
		}
		items = append(items, item)
	}
	return items
}

func deathText(kind ledger.Kind, before, now deadKnown) string {
	verb := "are"
	if now.Tasks == 1 {
		verb = "is"
	}
	text := fmt.Sprintf("%s of kind %s %s dead", formatTasks(now.Tasks), kind, verb)
	switch more := now.Tasks - before.Tasks; {
	case before.Tasks == 0:
	case more > 0:
		text += fmt.Sprintf(", %s more than told before", printable.Count(more))
	default:
		text += ", some of them newly"
	}
	return text
}

func cut(s string) string {
	if len(s) > maxError {
		s = s[:maxError] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func (k known) conditions(o observation, r Rules, next known) (items []Item) {
	for _, c := range o.holds {
		before, told := k.Open[c.key()]
		item := Item{What: c.what, About: c.about, Text: c.text}
		switch {
		case !told:
			before = openKnown{o.now, o.now}
			item.Status = StatusNew
		case r.Remind > 0 && o.now.Sub(before.Told) >= time.Duration(r.Remind):
			before.Told = o.now
			item.Status, item.Text = StatusHolds, "still: "+item.Text
		}
		item.Since = before.Since
		next.Open[c.key()] = before
		if item.Status != "" {
			items = append(items, item)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(k.Open)) {
		if _, holds := next.Open[key]; holds {
			continue
		}
		what, about, _ := strings.Cut(key, " ")
		if !r.watch(what, ledger.Kind(about)) { // the rule has gone, and nobody knows
			continue
		}
		items = append(items, Item{What: what, About: about, Status: StatusOver, Since: k.Open[key].Since, Text: overText(what, about)})
	}
	return items
}

func overText(what, about string) string {
	switch what {
	case WhatDeadOver:
		return "over: the dead tasks of kind " + about + " are within their limit"
	case WhatWaitingOver:
		return "over: no task of kind " + about + " waits too long"
	case WhatRelayLag:
		return "over: the relay has caught up"
	case WhatProjectionLag:
		return "over: the projection has caught up"
	case WhatTimersLate:
		return "over: what is due later is released in time"
	case WhatScheduleLate:
		return "over: schedule " + about + " is not late"
	}
	return "over: " + what + " " + about
}
