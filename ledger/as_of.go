package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/count_as_of.sql
	countAsOfSQL string
	//go:embed sql/heads_as_of.sql
	headsAsOfSQL string
	//go:embed sql/tasks_as_of.sql
	tasksAsOfSQL string
)

// StateCount is the number of tasks of a kind in a state.
type StateCount struct {
	Kind  Kind  `json:"kind"`
	State State `json:"state"`
	Tasks int64 `json:"tasks"`
}

// CountAsOf counts the tasks of a kind by state as they were at a moment, by each task's last event. The kind "" means
// all kinds. It needs no projection. It reads all events up to the moment: a million tasks take some seconds.
func CountAsOf(ctx context.Context, db DB, m Moment, kind Kind) ([]StateCount, error) {
	if err := kind.ValidateStored(); err != nil {
		return nil, fmt.Errorf("count as of %s: %w", m, err)
	}
	m, err := m.orPresent(ctx, db)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, countAsOfSQL, append(m.passedArgs(), int64(m.top), string(kind))...)
	if err != nil {
		return nil, pgerr.Explain("count as of "+m.String(), err)
	}
	defer rows.Close()
	var all []StateCount
	for rows.Next() {
		var c StateCount
		if err := rows.Scan((*string)(&c.Kind), (*string)(&c.State), &c.Tasks); err != nil {
			return nil, pgerr.Explain("count as of "+m.String(), err)
		}
		all = append(all, c)
	}
	return all, pgerr.Explain("count as of "+m.String(), rows.Err())
}

// orPresent returns m, or the present for the zero value.
func (m Moment) orPresent(ctx context.Context, db DB) (Moment, error) {
	if m.IsZero() {
		return present(ctx, db)
	}
	return m, nil
}

// PastFilter selects tasks as they were at a moment. The zero value selects all tasks now.
type PastFilter struct {
	Moment     Moment  // Default: the present.
	Kind       Kind    // Default: all kinds.
	States     []State // Default: all states.
	StartAfter Key     // Only tasks with a higher key. Default: all.
	Limit      int     // Default: no limit, which reads all tasks in one statement.
}

// Validate returns nil, or an [*InvalidError] that names the invalid field.
func (f PastFilter) Validate() error {
	if err := f.Kind.ValidateStored(); err != nil {
		return err
	}
	for _, s := range f.States {
		if !slices.ContainsFunc(transitions, func(row Transition) bool { return row.To == s }) {
			return &InvalidError{Field: "state", Value: string(s), Rule: "must be one of " + stateNames()}
		}
	}
	if f.Limit < 0 {
		return &InvalidError{Field: "limit", Value: fmt.Sprint(f.Limit), Rule: "must not be negative"}
	}
	return f.StartAfter.ValidateStored()
}

// stateNames lists the states.
func stateNames() string {
	var names []string
	for _, row := range transitions {
		if name := string(row.To); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// PastTask is the state of a task as of a moment. [LoadAsOf] returns the whole task.
type PastTask struct {
	Key
	State     State     `json:"state"`
	Version   Version   `json:"version"`    // of the last event
	Attempt   Attempt   `json:"attempt"`    // of the last event
	UpdatedAt time.Time `json:"updated_at"` // time of the last event
}

// ListAsOf returns tasks as they were at a moment, in key order. It needs no projection. Without a limit it reads all
// events up to the moment in one statement, and db is in use until the loop ends; with a limit it reads pages of tasks
// by their keys, until it has found enough. The loop may break. An error is the last pair: an error of
// [PastFilter.Validate] or of the database.
func ListAsOf(ctx context.Context, db DB, f PastFilter) iter.Seq2[PastTask, error] {
	return func(yield func(PastTask, error) bool) {
		err := f.Validate()
		if err == nil {
			f.Moment, err = f.Moment.orPresent(ctx, db)
		}
		if err == nil {
			err = f.list(ctx, db, func(t PastTask) bool { return yield(t, nil) })
		}
		if err != nil {
			yield(PastTask{}, pgerr.Explain("tasks as of "+f.Moment.String(), err))
		}
	}
}

// list calls yield for each task until it returns false.
func (f *PastFilter) list(ctx context.Context, db DB, yield func(PastTask) bool) error {
	if f.Limit == 0 {
		return f.all(ctx, db, yield)
	}
	for more, n := true, 0; more; {
		var tasks []PastTask
		var err error
		if tasks, more, err = f.page(ctx, db); err != nil {
			return err
		}
		for _, t := range tasks {
			if n++; !yield(t) || n == f.Limit {
				return nil
			}
		}
	}
	return nil
}

// all reads all tasks in one statement.
func (f *PastFilter) all(ctx context.Context, db DB, yield func(PastTask) bool) error {
	args := append(f.Moment.passedArgs(), int64(f.Moment.top), string(f.Kind), f.stateArg(), string(f.StartAfter.Kind),
		string(f.StartAfter.BizID))
	rows, err := db.Query(ctx, tasksAsOfSQL, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var t PastTask
	columns := []any{(*string)(&t.Kind), (*string)(&t.BizID), (*string)(&t.State), (*int32)(&t.Version),
		(*int32)(&t.Attempt), pgquery.Micros(&t.UpdatedAt)}
	for rows.Next() {
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		if !yield(t) {
			return nil
		}
	}
	return rows.Err()
}

// headsPage is the number of tasks that a statement reads.
const headsPage = 1_000

// page reads the next tasks, moves f after them, and reports whether there may be others.
func (f *PastFilter) page(ctx context.Context, db DB) (tasks []PastTask, more bool, err error) {
	after, last := f.StartAfter, string(f.Kind)
	switch {
	case f.Kind == "":
		last = "\U0010ffff" // higher than each kind
	case after.Kind < f.Kind:
		after = Key{Kind: f.Kind}
	}
	limit := headsPage
	if len(f.States) == 0 {
		limit = min(limit, f.Limit)
	}
	args := append(f.Moment.passedArgs(), int64(f.Moment.top), string(after.Kind), string(after.BizID), last,
		int64(limit), f.stateArg())
	rows, err := db.Query(ctx, headsAsOfSQL, args...)
	if err != nil {
		return nil, false, err
	}
	var matches bool
	for e, err := range scanEvents(rows, &more, &matches) {
		if err != nil {
			return nil, false, err
		}
		if f.StartAfter = e.Key; matches {
			tasks = append(tasks, PastTask{e.Key, e.Type.State(), e.Version, e.Attempt, e.RecordedAt})
		}
	}
	return tasks, more, nil
}

// stateArg returns the states as an array literal.
func (f *PastFilter) stateArg() string {
	var states pgarray.Builder
	for _, s := range f.States {
		states.Add(string(s))
	}
	return states.String()
}
