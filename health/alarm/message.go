package alarm

import (
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// What an [Item] is about.
const (
	WhatDead           = "dead"            // tasks of a kind have gone dead
	WhatDeadOver       = "dead_over"       // more of a kind are dead than its limit
	WhatWaitingOver    = "waiting_over"    // a task of a kind has been available for longer than its limit
	WhatRelayLag       = "relay_lag"       // events wait to be published
	WhatProjectionLag  = "projection_lag"  // events wait to be projected
	WhatScheduleMissed = "schedule_missed" // a schedule has passed slots over
	WhatTimersLate     = "timers_late"     // a delay, a retry or a deadline is due that no scheduler fires
	WhatScheduleLate   = "schedule_late"   // a slot is due that nobody fires
	WhatTest           = "test"            // somebody wanted to see an alarm
)

// What has become of what an [Item] is about.
const (
	StatusNew   = "new"   // it has happened, or holds, and was not told
	StatusHolds = "holds" // it was told, and holds still
	StatusOver  = "over"  // it was told, and holds no longer
)

// Message is one alarm as its receiver gets it: as JSON (webhook, stdin of a command), or as text.
type Message struct {
	Alarm  string    `json:"alarm"`  // biz_id of its task: one alarm delivered twice has the same
	Ledger string    `json:"ledger"` // id of the installation
	At     time.Time `json:"at"`     // when it was made
	Items  []Item    `json:"items"`
	More   int       `json:"more,omitempty"` // items that are left out
}

// Item is one thing that an alarm tells.
type Item struct {
	What   string    `json:"what"`
	About  string    `json:"about,omitempty"` // a kind or a schedule
	Status string    `json:"status"`
	Text   string    `json:"text"` // in a sentence, printable
	Since  time.Time `json:"since,omitzero"`
	Tasks  int64     `json:"tasks,omitempty"`  // dead ones
	Groups []Group   `json:"groups,omitempty"` // of them, the largest
}

// Group is what dead tasks have in common. Example and Error are as others wrote them.
type Group struct {
	Fingerprint string     `json:"fingerprint"`
	Tasks       int64      `json:"tasks"`
	Newest      time.Time  `json:"newest"`
	Example     ledger.Key `json:"example"` // the newest
	Error       string     `json:"error"`
}

// Limits of a message, so that it stays within the args that a task may have.
const (
	maxItems  = 50
	maxGroups = 40  // of all items together
	maxOfOne  = 10  // of one item
	maxError  = 300 // bytes
)

// limit leaves out what is too much for one message.
func (m *Message) limit() {
	if len(m.Items) > maxItems {
		m.More = len(m.Items) - maxItems
		m.Items = m.Items[:maxItems]
	}
	left := maxGroups
	for i := range m.Items {
		g := &m.Items[i].Groups
		*g = (*g)[:min(len(*g), left)]
		left -= len(*g)
	}
}

// Subject says it in one line.
func (m Message) Subject() string {
	if len(m.Items) == 0 {
		return "[taskledger] nothing"
	}
	text := "[taskledger] " + m.Items[0].Text
	if others := len(m.Items) - 1 + m.More; others > 0 {
		text += fmt.Sprintf(", and %d more", others)
	}
	return text
}

// Text says it at length. Whatever others wrote is printable and in one line.
func (m Message) Text() string {
	var b strings.Builder
	for _, i := range m.Items {
		fmt.Fprintf(&b, "* %s\n", i.Text)
		if !i.Since.IsZero() {
			fmt.Fprintf(&b, "  since %s\n", i.Since.UTC().Format(time.RFC3339))
		}
		for _, g := range i.Groups {
			fmt.Fprintf(&b, "  - %s, the newest at %s: %s\n    %s\n    taskledger task dead --kind %s  (fingerprint %s)\n", formatTasks(g.Tasks),
				g.Newest.UTC().Format(time.RFC3339), printable.Short(g.Example.String(), 300), printable.Short(g.Error, 300), g.Example.Kind, printable.Text(g.Fingerprint))
		}
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "* and %d more\n", m.More)
	}
	fmt.Fprintf(&b, "\nAlarm %s of %s, ledger %s\n", printable.Text(m.Alarm), m.At.UTC().Format(time.RFC3339), printable.Text(m.Ledger))
	return b.String()
}
