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

// loadedTask is one result of loadFinished.
type loadedTask struct {
	task Task
	err  error
}

// loadFinishedTasks is loadFinished for packages of this module: see unexported.LoadFinished.
func loadFinishedTasks(ctx context.Context, db DB, keys []Key) (tasks []Task, errs []error, err error) {
	loaded, err := loadFinished(ctx, db, keys)
	for _, l := range loaded {
		tasks, errs = append(tasks, l.task), append(errs, l.err)
	}
	return tasks, errs, err
}

// loadFinished returns the tasks with these keys, in their order, from one snapshot. It takes one statement for all of
// them, and one more for each finished task with more than 64 events. It returns only errors of the database.
//
// A task is as [Load] returns it if it is finished. Otherwise only Key, Shard, State, Version, Attempt, UpdatedAt and
// Actor are set. Of an archived task, Key, State, Version, ArchivedAt and the same time as UpdatedAt are set. Its error
// is [ErrUnknownTask] if the task does not exist, and the [*IllegalError] of [Load].
func loadFinished(ctx context.Context, db DB, keys []Key) ([]loadedTask, error) {
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
	loaded := make([]loadedTask, len(keys))
	for i, k := range keys {
		loaded[i] = loadedTask{task: Task{Key: k}, err: fmt.Errorf("%s: %w", k, ErrUnknownTask)}
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
			*l = loadedTask{task: Task{
				Key: e.Key, Shard: e.Shard, State: e.Type.State(), Version: e.Version, Attempt: e.Attempt,
				UpdatedAt: e.RecordedAt, Actor: e.Actor,
			}}
		case e.Version > longTask:
			long = append(long, int(number-1))
		case e.Version == 1 || l.err == nil:
			l.apply(e)
		}
	}
	if err := loadArchived(ctx, db, loaded); err != nil {
		return nil, err
	}
	for _, i := range long {
		if l := &loaded[i]; l.err == nil {
			if l.task, err = l.task.applyLong(ctx, db, math.MaxInt32); err != nil {
				return nil, err
			}
		}
	}
	return loaded, nil
}

// apply applies the next event.
func (l *loadedTask) apply(e Event) {
	task := l.task
	if e.Version == 1 {
		task = Task{}
	}
	next, err := task.Apply(e)
	if l.task, l.err = next, nil; err != nil {
		l.err = fmt.Errorf("load %s: %w", e.Key, err)
	}
}

// loadArchived sets the tasks that were archived: finished, without result.
func loadArchived(ctx context.Context, db DB, loaded []loadedTask) error {
	var keys []Key
	var places []int
	for i, l := range loaded {
		if l.err != nil && l.task.Version == 0 {
			keys, places = append(keys, l.task.Key), append(places, i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	archived, err := Archived(ctx, db, keys...)
	for n, a := range archived {
		if a != nil {
			loaded[places[n]] = loadedTask{task: Task{
				Key: a.Key, State: a.State, Version: a.Version, UpdatedAt: a.At, ArchivedAt: a.At,
			}}
		}
	}
	return err
}
