package alarm

import (
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// The subjects of an [Item], in addition to the conditions of package health for which [Rules] has a threshold.
const (
	WhatDead           = "dead"            // tasks of a kind have died
	WhatDeadOver       = "dead_over"       // the dead tasks of a kind exceed their limit
	WhatWaitingOver    = "waiting_over"    // a task of a kind has been available for longer than its limit
	WhatScheduleMissed = "schedule_missed" // a schedule has passed over firings
	WhatTest           = "test"            // an operator tests the receiver
)

// The values of [Item].Status.
const (
	StatusNew   = "new"   // it has happened or begun, and was not reported before
	StatusHolds = "holds" // it was reported, and still holds
	StatusOver  = "over"  // it was reported, and no longer holds
)

// Message is an alarm in the form that its receiver gets: as JSON (data of a webhook, stdin of a command) or as text.
type Message struct {
	Alarm  string    `json:"alarm"`  // biz_id of its task; equal if the alarm is delivered twice
	Ledger string    `json:"ledger"` // id of the installation
	At     time.Time `json:"at"`     // when it was created
	Items  []Item    `json:"items"`
	More   int       `json:"more,omitempty"` // items that are left out
}

// Item is one piece of news.
type Item struct {
	What   string    `json:"what"`
	About  string    `json:"about,omitempty"` // a kind or a schedule
	Status string    `json:"status"`
	Text   string    `json:"text"` // one sentence, printable
	Cure   string    `json:"cure,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Tasks  int64     `json:"tasks,omitempty"`  // dead ones
	Groups []Group   `json:"groups,omitempty"` // of them, the largest
}

// Group is the dead tasks of a kind with one error. Example and Error are untrusted text.
type Group struct {
	Fingerprint string     `json:"fingerprint"`
	Tasks       int64      `json:"tasks"`
	Newest      time.Time  `json:"newest"`
	Example     ledger.Key `json:"example"` // the newest
	Error       string     `json:"error"`
}

// Limits of a message, so that the args of its task stay within the ledger's limit.
const (
	maxItems  = 50
	maxGroups = 40  // of all items together
	maxOfOne  = 10  // of one item
	maxError  = 300 // bytes
)

// limit removes items and groups beyond the limits.
func (m *Message) limit() {
	if len(m.Items) > maxItems {
		m.More = len(m.Items) - maxItems
		m.Items = m.Items[:maxItems]
	}
	remaining := maxGroups
	for i := range m.Items {
		g := &m.Items[i].Groups
		*g = (*g)[:min(len(*g), remaining)]
		remaining -= len(*g)
	}
}

// Subject returns the message in one line.
func (m Message) Subject() string {
	if len(m.Items) == 0 {
		return "[taskledger] no news"
	}
	text := "[taskledger] " + m.Items[0].Text
	if others := len(m.Items) - 1 + m.More; others > 0 {
		text += fmt.Sprintf(", and %d more", others)
	}
	return text
}

// Text returns the message as text for people. Untrusted text in it is printable, without line ends.
func (m Message) Text() string {
	var b strings.Builder
	for _, i := range m.Items {
		fmt.Fprintf(&b, "* %s\n", i.Text)
		if !i.Since.IsZero() {
			fmt.Fprintf(&b, "  since %s\n", i.Since.UTC().Format(time.RFC3339))
		}
		if i.Cure != "" {
			fmt.Fprintf(&b, "  cure: %s\n", i.Cure)
		}
		for _, g := range i.Groups {
			fmt.Fprintf(&b, "  - %s, the newest at %s: %s\n",
				formatTasks(g.Tasks), g.Newest.UTC().Format(time.RFC3339), printable.Short(g.Example.String(), 300))
			fmt.Fprintf(&b, "    %s\n", printable.Short(g.Error, 300))
			fmt.Fprintf(&b, "    taskledger show dead --kind %s  (fingerprint %s)\n",
				g.Example.Kind, printable.Text(g.Fingerprint))
		}
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "* and %d more\n", m.More)
	}
	fmt.Fprintf(&b, "\nAlarm %s of %s, ledger %s\n",
		printable.Text(m.Alarm), m.At.UTC().Format(time.RFC3339), printable.Text(m.Ledger))
	return b.String()
}

// formatTasks returns a number of tasks in words.
func formatTasks(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return printable.Count(n) + " tasks"
}
