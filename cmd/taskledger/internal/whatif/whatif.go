package whatif

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Report is what would have differed.
type Report struct {
	Tasks int64 `json:"tasks"` // with a failure in the range

	Saved   int64 `json:"saved"`   // dead, expired or rescued in fact, would have succeeded without a person
	Perhaps int64 `json:"perhaps"` // dead or expired in fact, would have had more attempts of unknown outcome
	Lost    int64 `json:"lost"`    // succeeded in fact, would have been dead or expired

	AttemptsRecorded  int64 `json:"attempts_recorded"`
	AttemptsSimulated int64 `json:"attempts_simulated"`

	Earlier Shift `json:"earlier"` // tasks that would have succeeded earlier than they did
	Later   Shift `json:"later"`   // tasks that would have succeeded later than they did

	Refused  []Refusal `json:"refused"`  // events that another transition table would not have allowed
	Differed int64     `json:"differed"` // tasks that would be in another state by that table

	Examples []Example `json:"examples"` // the first tasks that would have differed, at most 20
}

// Shift counts tasks that would have ended at another time, and by how much.
type Shift struct {
	Tasks int64         `json:"tasks"`
	Mean  time.Duration `json:"mean_ns"`
	Max   time.Duration `json:"max_ns"`

	sum float64
}

func (s *Shift) add(d time.Duration) {
	s.Tasks++
	s.sum += float64(d)
	s.Mean, s.Max = time.Duration(s.sum/float64(s.Tasks)), max(s.Max, d)
}

// Refusal counts events that another transition table would not have allowed.
type Refusal struct {
	Type   ledger.EventType `json:"type"`
	State  ledger.State     `json:"state"` // of the task
	Events int64            `json:"events"`
}

// Example is a task that would have differed.
type Example struct {
	ledger.Key
	Recorded          Outcome   `json:"recorded"`
	RecordedAt        time.Time `json:"recorded_at,omitzero"`
	AttemptsRecorded  int       `json:"attempts_recorded"`
	Simulated         Outcome   `json:"simulated"`
	SimulatedAt       time.Time `json:"simulated_at,omitzero"`
	AttemptsSimulated int       `json:"attempts_simulated"`
}

const maxExamples = 20

// failures are the types of events that make a task part of a range.
var failures = []ledger.EventType{ledger.EventFailed, ledger.EventBuried, ledger.EventExpired}

// Run runs the tasks that failed, were buried or expired in a range against another policy: see the package comment.
// It reads the whole history of each task once, even events after the range. progress is called after each task,
// unless it is nil. The memory of Run does not grow with the number of tasks. It changes nothing.
//
// It returns the errors of [Policy.Validate] and of [ledger.Events].
func Run(ctx context.Context, db ledger.DB, r ledger.Range, p Policy, progress func(tasks int64)) (Report, error) {
	report := Report{Refused: []Refusal{}, Examples: []Example{}}
	if err := p.Validate(); err != nil {
		return report, err
	}
	r.Types = failures
	for e, err := range ledger.Events(ctx, db, r) {
		if err == nil {
			err = report.addTask(ctx, db, p, e, r.From)
		}
		if err != nil {
			return report, fmt.Errorf("what-if: %w", err)
		}
		if progress != nil {
			progress(report.Tasks)
		}
	}
	slices.SortFunc(report.Refused, func(a, b Refusal) int {
		return strings.Compare(string(a.Type)+" "+string(a.State), string(b.Type)+" "+string(b.State))
	})
	return report, nil
}

// addTask runs the task of a failure against a policy, if it is the task's first failure since a moment.
func (r *Report) addTask(ctx context.Context, db ledger.DB, p Policy, e ledger.Event, since ledger.Moment) error {
	isFirst, err := isFirstSince(ctx, db, e, since)
	if err != nil || !isFirst {
		return err
	}
	events, err := ledger.History(ctx, db, e.Key)
	if err == nil {
		r.add(p, runOf(events, e.Version))
	}
	return err
}

// isFirstSince reports whether e is the first failure of its task after a moment. It reads one earlier failure, not the
// whole history.
func isFirstSince(ctx context.Context, db ledger.DB, e ledger.Event, since ledger.Moment) (bool, error) {
	earlier, err := ledger.NewestOf(ctx, db, e.Key, ledger.NewestOptions{Before: e.Version, Types: failures, Limit: 1})
	if err != nil || len(earlier) == 0 || since.IsZero() {
		return err == nil && len(earlier) == 0, err
	}
	reached, err := ledger.VersionAsOf(ctx, db, e.Key, since)
	if errors.Is(err, ledger.ErrUnknownTask) {
		return false, nil
	}
	return earlier[0].Version <= reached, err
}

// add adds a task with the events of a run.
func (r *Report) add(p Policy, events []ledger.Event) {
	t := readPast(events)
	r.Tasks++
	if len(p.Transitions) > 0 {
		r.refuse(p, events)
	}
	if p.Retry == nil && p.StartBy == 0 && p.FinishBy == 0 {
		return
	}
	f := p.simulate(t)
	recorded := len(t.failures)
	if !t.succeeded.ended.IsZero() {
		recorded++
	}
	r.AttemptsRecorded += int64(recorded)
	r.AttemptsSimulated += int64(f.attempts)
	hasFailed := t.outcome == Dead || t.outcome == Expired
	differs := true
	switch {
	case f.outcome == Succeeded && (hasFailed || t.outcome == Rescued):
		r.Saved++
	case f.outcome == Unknown && hasFailed:
		r.Perhaps++
	case t.outcome == Succeeded && (f.outcome == Dead || f.outcome == Expired):
		r.Lost++
	default:
		differs = f.outcome == Succeeded && !f.at.Equal(t.endedAt)
	}
	if f.outcome == Succeeded && !t.succeeded.ended.IsZero() {
		switch d := f.at.Sub(t.endedAt); {
		case d < 0:
			r.Earlier.add(-d)
		case d > 0:
			r.Later.add(d)
		}
	}
	if differs && len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples,
			Example{events[0].Key, t.outcome, t.endedAt, recorded, f.outcome, f.at, f.attempts})
	}
}

// refuse counts the events of a task that another table would not have allowed. Such an event changes nothing, and the
// ones after it are tried all the same.
func (r *Report) refuse(p Policy, events []ledger.Event) {
	table := ledger.Transitions()
	for _, row := range p.Transitions {
		i := slices.IndexFunc(table, func(old ledger.Transition) bool { return old.Type == row.Type })
		table[i] = row
	}
	state := ledger.StateNone
	for _, e := range events {
		i := slices.IndexFunc(table, func(row ledger.Transition) bool { return row.Type == e.Type })
		if i >= 0 && slices.Contains(table[i].From, state) {
			state = table[i].To
			continue
		}
		r.countRefusal(e.Type, state)
	}
	if state != events[len(events)-1].Type.State() {
		r.Differed++
	}
}

func (r *Report) countRefusal(t ledger.EventType, s ledger.State) {
	i := slices.IndexFunc(r.Refused, func(old Refusal) bool { return old.Type == t && old.State == s })
	if i < 0 {
		i = len(r.Refused)
		r.Refused = append(r.Refused, Refusal{Type: t, State: s})
	}
	r.Refused[i].Events++
}
