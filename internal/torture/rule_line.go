package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

// outOfLine finds tasks that got their turn while another task of their line had it, or before their place, and tasks
// that began without a turn.
func outOfLine(r *record) (all []string) {
	all = slices.Clone(r.jumped)
	lines := make(map[string][]ledger.Event)
	for _, events := range r.tasks {
		for _, e := range events {
			if e.OrderKey != "" {
				lines[e.OrderKey] = append(lines[e.OrderKey], e)
			}
		}
	}
	for line, events := range lines {
		slices.SortFunc(events, func(a, b ledger.Event) int { return cmp.Compare(a.Position, b.Position) })
		var holder ledger.Key
		lined := make(map[ledger.Key]bool)
		for _, e := range events {
			state := e.Type.State()
			switch {
			case state == ledger.StateInLine || e.Type == ledger.EventScheduled:
				lined[e.Key] = state == ledger.StateInLine
			case e.Type == ledger.EventReleased && lined[e.Key]:
				if holder != (ledger.Key{}) {
					all = append(all, fmt.Sprintf("%s got its turn in %s while %s had it", e.Key, line, holder))
				}
				holder, lined[e.Key] = e.Key, false
				continue
			case state == ledger.StateRunning && holder != e.Key:
				all = append(all, fmt.Sprintf("%s began in %s without a turn", e.Key, line))
			}
			hasEnded := state.Finished() || state == ledger.StateDead || state == ledger.StateInLine ||
				e.Type == ledger.EventScheduled
			if e.Key == holder && hasEnded {
				holder = ledger.Key{}
			}
		}
	}
	return all
}
