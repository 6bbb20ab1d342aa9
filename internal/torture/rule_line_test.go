package main

import (
	"slices"
	"testing"

	"github.com/taskledger/taskledger/ledger"
)

// A second turn in a line is a breach until the task before it has ended, and a start without a turn always is. A retry
// keeps the turn.
func TestTurnsOfALine(t *testing.T) {
	t.Parallel()
	const lined, turn, start, fail, end = ledger.EventLinedUp, ledger.EventReleased, ledger.EventStarted,
		ledger.EventFailed, ledger.EventSucceeded
	type step struct {
		id  ledger.BizID
		typ ledger.EventType
	}
	for _, test := range []struct {
		name   string
		events []step // in the order of their positions
		want   []string
	}{
		{name: "one after another", events: []step{
			{"a", lined}, {"b", lined}, {"a", turn}, {"a", start}, {"a", end}, {"b", turn}, {"b", end}}},
		{name: "a retry", events: []step{
			{"a", lined}, {"a", turn}, {"a", start}, {"a", fail}, {"a", turn}, {"a", start}, {"a", end}}},
		{name: "a dead task is passed over and lines up again", events: []step{
			{"a", lined}, {"b", lined}, {"a", turn}, {"a", ledger.EventBuried}, {"b", turn}, {"a", lined}, {"b", end},
			{"a", turn}}},
		{name: "two at once", events: []step{
			{"a", lined}, {"b", lined}, {"a", turn}, {"b", turn}, {"a", end}, {"b", end},
		}, want: []string{"line/b got its turn in line-1 while line/a had it"}},
		{name: "two at once during a retry", events: []step{
			{"a", lined}, {"b", lined}, {"a", turn}, {"a", start}, {"a", fail}, {"b", turn},
		}, want: []string{"line/b got its turn in line-1 while line/a had it"}},
		{name: "no turn", events: []step{{"a", lined}, {"a", start}},
			want: []string{"line/a began in line-1 without a turn"}},
	} {
		r := &record{tasks: make(map[ledger.Key][]ledger.Event)}
		for i, s := range test.events {
			k := ledger.Key{Kind: "line", BizID: s.id}
			r.tasks[k] = append(r.tasks[k], ledger.Event{Key: k, Version: ledger.Version(len(r.tasks[k]) + 1),
				Type: s.typ, Position: ledger.Position(i + 1), OrderKey: "line-1"})
		}
		if got := outOfLine(r); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
