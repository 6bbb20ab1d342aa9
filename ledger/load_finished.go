package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"math"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/finished.sql
var finishedSQL string

// LoadedTask is one result of [LoadFinished].
type LoadedTask struct {
	// Task is as [Load] returns it if it is finished. Otherwise only Key, Shard, State, Version, Attempt, UpdatedAt
	// and Actor are set.
	Task Task
	// Err is [ErrUnknownTask] if the task does not exist, and the [*IllegalError] of [Load].
	Err error
}

// LoadFinished returns the tasks with these keys, in their order, from one snapshot. It takes one statement for all of
// them, and one more for each finished task with more than 64 events. It returns only errors of the database.
func LoadFinished(ctx context.Context, db DB, keys []Key) ([]LoadedTask, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var kinds, ids pgarray.Builder
	for _, k := range keys {
		kinds.Add(string(k.Kind))
		ids.Add(string(k.BizID))
	}
	rows, err := db.Query(ctx, finishedSQL, kinds.String(), ids.String(), int64(longTask+1))
	if err != nil {
		return nil, pgerr.Explain("load finished tasks", err)
	}
	loaded := make([]LoadedTask, len(keys))
	for i, k := range keys {
		loaded[i] = LoadedTask{Task: Task{Key: k}, Err: fmt.Errorf("%s: %w", k, ErrUnknownTask)}
	}
	var number int64
	var isFinished bool
	var long []int // tasks with more events than were read
	for e, err := range scanEvents(rows, &number, &isFinished) {
		if err != nil {
			return nil, pgerr.Explain("load finished tasks", err)
		}
		l := &loaded[number-1]
		switch {
		case !isFinished:
			*l = LoadedTask{Task: Task{
				Key: e.Key, Shard: e.Shard, State: e.Type.State(), Version: e.Version, Attempt: e.Attempt,
				UpdatedAt: e.RecordedAt, Actor: e.Actor,
			}}
		case e.Version > longTask:
			long = append(long, int(number-1))
		case e.Version == 1 || l.Err == nil:
			l.apply(e)
		}
	}
	for _, i := range long {
		if l := &loaded[i]; l.Err == nil {
			if l.Task, err = l.Task.applyLong(ctx, db, math.MaxInt32); err != nil {
				return nil, err
			}
		}
	}
	return loaded, nil
}

// apply applies the next event.
func (l *LoadedTask) apply(e Event) {
	task := l.Task
	if e.Version == 1 {
		task = Task{}
	}
	next, err := task.Apply(e)
	if l.Task, l.Err = next, nil; err != nil {
		l.Err = fmt.Errorf("load %s: %w", e.Key, err)
	}
}
