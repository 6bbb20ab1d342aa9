package scheduler

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/timers_due.sql
var timersDueSQL string

const (
	// deferredPatience is how long a deferred group waits for a task that an open transaction has appended to. It is
	// short, because many groups may be locked, and a brief lock has ended by then.
	deferredPatience = 2 * time.Millisecond
	// lockedDelay is the pause before a locked task is tried again.
	lockedDelay = 5 * time.Second
	// maxDeferred bounds the deferred tasks. While more are locked, the other tasks are late.
	maxDeferred = 10_000
	// deferredParts is the number of groups into which tasks that failed together are divided.
	deferredParts = 4
)

// deferrals contains due tasks, some locked by an open transaction, so that the other tasks are on time. A batch
// with a locked task fails as a whole, and the error does not name the task. The tasks of the batch are tried again in
// groups, one group between two batches of other tasks. A failed group is divided, until each locked task is a group
// of its own. It is for the goroutine of Scheduler.Run.
type deferrals struct {
	groups   []group
	keys     string    // all keys as array literal; "": not built yet
	warnedAt time.Time // when locked tasks were last logged
}

// group is tasks that are tried together.
type group struct {
	tasks    []dueTask
	isLocked bool      // it failed when it contained one task
	retryAt  time.Time // by the monotonic clock
}

// dueTask is a task with a timer that is due.
type dueTask struct {
	key ledger.Key
	at  time.Time
}

// wait returns the time until a group can be tried.
func (d *deferrals) wait() time.Duration {
	wait := maxQuiet
	for _, g := range d.groups {
		wait = min(wait, max(0, time.Until(g.retryAt)))
	}
	return wait
}

// ready returns the index of a group that can be tried, or -1.
func (d *deferrals) ready() int {
	return slices.IndexFunc(d.groups, func(g group) bool { return !time.Now().Before(g.retryAt) })
}

// add adds tasks in several groups.
func (d *deferrals) add(tasks []dueTask) {
	for part := range slices.Chunk(tasks, max(1, (len(tasks)+deferredParts-1)/deferredParts)) {
		d.groups = append(d.groups, group{tasks: part})
	}
	d.keys = ""
}

// remove removes a group. Its tasks that still have due timers are in the next batch.
func (d *deferrals) remove(i int) {
	d.groups = slices.Delete(d.groups, i, i+1)
	d.keys = ""
}

// delay moves group i, as g, behind all others, so that each group gets its turn.
func (d *deferrals) delay(i int, g group, by time.Duration) {
	g.retryAt = time.Now().Add(by)
	d.groups = append(slices.Delete(d.groups, i, i+1), g)
}

// removeLocked removes all locked groups.
func (d *deferrals) removeLocked() {
	d.groups = slices.DeleteFunc(d.groups, func(g group) bool { return g.isLocked })
	d.keys = ""
}

// count returns the number of tasks.
func (d *deferrals) count() (n int) {
	for _, g := range d.groups {
		n += len(g.tasks)
	}
	return n
}

// literal returns the keys of all tasks as array literal.
func (d *deferrals) literal() string {
	if d.keys == "" {
		var all []dueTask
		for _, g := range d.groups {
			all = append(all, g.tasks...)
		}
		d.keys = keysLiteral(all)
	}
	return d.keys
}

func keysLiteral(tasks []dueTask) string {
	var keys pgarray.Builder
	for _, t := range tasks {
		keys.Add(t.key.String())
	}
	return keys.String()
}

// deferBatch defers the tasks of the next batch, which failed because a transaction locks one of them.
func (s *Scheduler) deferBatch(ctx context.Context) (time.Duration, error) {
	limit := min(maxBatch, maxDeferred-s.deferred.count())
	if limit == 0 {
		s.warnLocked(ctx)
		return maxIdle, nil
	}
	tasks, err := s.readDue(ctx, limit)
	if err == nil {
		s.deferred.add(tasks)
	}
	return 0, err
}

// readDue returns the tasks of the next batch, in its order.
func (s *Scheduler) readDue(ctx context.Context, limit int) (tasks []dueTask, err error) {
	batch := &pgx.Batch{}
	batch.Queue(settingsSQL, lockTimeout(batchPatience), "off")
	args := []any{pgquery.Time(s.horizon.next), int64(limit), s.deferred.literal()}
	batch.Queue(timersDueSQL, args...).Query(func(rows pgx.Rows) error {
		tasks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t dueTask, err error) {
			err = row.Scan((*string)(&t.key.Kind), (*string)(&t.key.BizID), pgquery.Micros(&t.at))
			return t, err
		})
		return err
	})
	return tasks, s.config.DB.SendBatch(ctx, batch).Close()
}

// retryDeferred fires the timers of a deferred group, if one can be tried.
func (s *Scheduler) retryDeferred(ctx context.Context) error {
	i := s.deferred.ready()
	if i < 0 {
		return nil
	}
	g := s.deferred.groups[i]
	f, err := s.fire(ctx, pgquery.Time(s.horizon.next), g.tasks)
	switch {
	case pgerr.Is(err, pgerr.LockNotAvailable) && len(g.tasks) > 1:
		s.deferred.remove(i)
		s.deferred.add(g.tasks)
	case pgerr.Is(err, pgerr.LockNotAvailable):
		g.isLocked = true
		s.deferred.delay(i, g, lockedDelay)
		s.warnLocked(ctx)
	case err != nil:
		return err
	case f.elsewhere > 0: // another scheduler is firing some of them, and may be waiting for a lock
		s.deferred.delay(i, g, batchPatience)
	case f.Timers > 0 && g.isLocked: // one transaction has locked most of them, and it has ended
		s.deferred.removeLocked()
	default:
		s.deferred.remove(i)
	}
	return nil
}

// warnLocked logs that tasks are locked, at most once in lockedDelay.
func (s *Scheduler) warnLocked(ctx context.Context) {
	if time.Since(s.deferred.warnedAt) < lockedDelay {
		return
	}
	s.deferred.warnedAt = time.Now()
	i := max(0, slices.IndexFunc(s.deferred.groups, func(g group) bool { return g.isLocked }))
	s.config.Logger.WarnContext(ctx, "an open transaction locks tasks that are due",
		"task", s.deferred.groups[i].tasks[0].key.String(), "deferred", s.deferred.count(), "retry_in", lockedDelay)
}
