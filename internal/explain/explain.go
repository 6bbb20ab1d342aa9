// Package explain states why a task does not begin, or why it is dead, in a sentence for people: for the console and
// the command line.
package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/nextrun"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

const (
	// maxNamed is the number of predecessors that a sentence names.
	maxNamed = 5
	// maxReason is the number of characters of a reason in a sentence.
	maxReason = 240
)

// Source reads the facts for a sentence.
type Source struct {
	DB ledger.DB
	// Counts returns the numbers of tasks by kind and state. Default: [projector.ReadCounts].
	Counts func(context.Context) ([]ledger.StateCount, error)
	// MayName reports whether a sentence may name another task of this kind. Default: each may be named.
	MayName func(ledger.Kind) bool
	// Age returns a duration as a text. Default: [printable.Age].
	Age func(time.Duration) string
}

func (s Source) mayName(k ledger.Kind) bool { return s.MayName == nil || s.MayName(k) }

func (s Source) age(d time.Duration) string {
	if s.Age != nil {
		return s.Age(d)
	}
	return printable.Age(d)
}

// State returns why a task does not begin or does not end, or why it is dead, and whether another run follows it. It
// returns "" if there is nothing to explain. It never commits.
func (s Source) State(ctx context.Context, t ledger.Task) (string, error) {
	why, err := s.state(ctx, t)
	if err != nil || t.State.Finished() || reserved.IsKind(t.Kind) {
		return why, err
	}
	next := nextrun.Of(t.Key)
	states, err := ledger.States(ctx, s.DB, []ledger.Key{next})
	if err != nil || states[next] != ledger.StateScheduled {
		return why, err
	}
	if why != "" {
		why += " "
	}
	return why + "One more run waits behind it, and begins when it has finished.", nil
}

func (s Source) state(ctx context.Context, t ledger.Task) (string, error) {
	switch t.State {
	case ledger.StateDead:
		return dead(t), nil
	case ledger.StateScheduled:
		return s.predecessors(ctx, t)
	case ledger.StateInLine:
		return s.inLine(ctx, t)
	case ledger.StateAvailable:
		return s.available(ctx, t)
	case ledger.StateRunning:
		return s.running(ctx, t)
	default:
		return "", nil
	}
}

// obstacle returns why no worker begins an available task, "" if it begins when a slot is free, and the number of live
// workers of its kind, if it was read.
func (s Source) obstacle(ctx context.Context, k ledger.Key) (why string, workersOfKind int64, err error) {
	paused, err := operator.ReadPaused(ctx, s.DB, "", lists.All)
	if err != nil {
		return "", 0, err
	}
	for _, p := range paused {
		if p.Kind == k.Kind {
			why := fmt.Sprintf("It does not begin because %s paused the kind: %s", p.Actor, p.Reason)
			return printable.Text(why), 0, nil
		}
	}
	if reserved.IsKind(k.Kind) {
		return "", 0, nil
	}
	limits, err := ledger.ReadTaskLimits(ctx, s.DB, k)
	if err != nil {
		return "", 0, err
	}
	now := time.Now()
	for _, l := range limits {
		if l.IsClosed(now) {
			return closed(l, now), 0, nil
		}
	}
	live, err := workers.ReadLiveCounts(ctx, s.DB)
	if err == nil && live[k.Kind] == 0 {
		why = "It does not begin because no live worker handles the kind. Start the program that registers it, or " +
			"restart it if it hangs."
	}
	return why, live[k.Kind], err
}

func (s Source) available(ctx context.Context, t ledger.Task) (string, error) {
	why, live, err := s.obstacle(ctx, t.Key)
	if err != nil || why != "" || reserved.IsKind(t.Kind) {
		return why, err
	}
	read := s.Counts
	if read == nil {
		read = func(ctx context.Context) ([]ledger.StateCount, error) {
			return projector.ReadCounts(ctx, s.DB, "", lists.All)
		}
	}
	counts, err := read(ctx)
	if err != nil {
		return "", err
	}
	waiting := int64(0)
	for _, c := range counts {
		if c.Kind == t.Kind && c.State == ledger.StateAvailable {
			waiting += c.Tasks
		}
	}
	slots, err := s.slots(ctx, t)
	return fmt.Sprintf("Waiting tasks of the kind: %s; live workers: %d%s.",
		printable.Count(max(waiting, 1)), live, slots), err
}

// maxWorkers is the number of workers whose slots are read.
const maxWorkers = 200

// slots returns how many slots for the task the live workers reported as free, "" if none reported.
func (s Source) slots(ctx context.Context, t ledger.Task) (string, error) {
	all, err := workers.ReadWorkers(ctx, s.DB, "", maxWorkers)
	free, slots := 0, 0
	for _, w := range all {
		for _, k := range w.Kinds {
			if w.Alive && k.Kind == t.Kind && k.Shards.Has(t.Shard) && k.Load != nil {
				slots += k.Load.Slots
				free += max(0, k.Load.Slots-k.Load.Running)
			}
		}
	}
	text := fmt.Sprintf(", with %d of %d slots free at their last report", free, slots)
	switch {
	case slots == 0:
		return "", err
	case free == 0:
		return text + ". It begins when a slot is free", err
	}
	return text + ". A free slot begins a task at once: if this one goes on waiting, check that a dispatcher is " +
		"running, and read the workers' log", err
}

// waitsForLimit is before the name of a limit.
const waitsForLimit = "It waits for the limit "

// Limit returns the name of the limit in the reason why a task waits, "" if it waits for no limit.
func Limit(why string) string {
	rest, isLimit := strings.CutPrefix(why, waitsForLimit)
	if i := strings.IndexAny(rest, " ,"); isLimit && i > 0 { // names have neither
		return rest[:i]
	}
	return ""
}

// closed returns that a task waits for a limit.
func closed(l ledger.TaskLimit, now time.Time) string {
	why := waitsForLimit + l.Use(now)
	if len(l.Holders) > 0 && l.MaxRunning != nil && l.Running >= *l.MaxRunning {
		why += ": " + printable.Names(l.Holders, maxNamed)
	}
	return printable.Text(why) + ". To change it: taskledger limit " + l.Name
}

// running returns that the worker of a running task is lost, "" if it is alive or unknown.
func (s Source) running(ctx context.Context, t ledger.Task) (string, error) {
	all, err := workers.ReadWorkers(ctx, s.DB, "", lists.All)
	if err != nil {
		return "", err
	}
	for _, w := range all {
		if w.ID != t.Actor || w.Alive {
			continue
		}
		live, err := workers.ReadLiveCounts(ctx, s.DB)
		if err != nil {
			return "", err
		}
		why := "Its worker is lost: it was killed, hangs or cannot reach the database. "
		if live[t.Kind] == 0 {
			return why + "No live worker handles the kind: start the program that registers it, or restart it.", nil
		}
		return why + "A live worker of the kind will take the task over.", nil
	}
	return "", nil
}

// dead returns the recorded reason why a task is dead.
func dead(t ledger.Task) string {
	switch t.Reason {
	case "":
		return ""
	case "attempts used up":
		return "It is dead because its attempts are used up. A release gives it all of them again."
	}
	return "It is dead because: " + printable.Short(t.Reason, maxReason)
}

func (s Source) predecessors(ctx context.Context, t ledger.Task) (string, error) {
	if len(t.After) == 0 {
		return "", nil
	}
	found, err := ledger.States(ctx, s.DB, t.After)
	if err != nil {
		return "", err
	}
	var names []string
	for _, k := range t.After {
		if found[k] != ledger.StateSucceeded {
			names = append(names, fmt.Sprintf("%s (%s)", k, found[k]))
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return "It waits for " + printable.Names(names, maxNamed) + ".", nil
}
