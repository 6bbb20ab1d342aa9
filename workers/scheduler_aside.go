package workers

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

//go:embed sql/timers_due.sql
var timersDueSQL string

const (
	// firePatience is how long a batch waits for a task that somebody's open transaction has
	// appended to; asidePatience how long one of those waits that were set aside, of which many may be
	// held: short, since what is only just appended to has moved on by then.
	firePatience  = 50 * time.Millisecond
	asidePatience = 2 * time.Millisecond
	// heldFor is how long a task is left alone that was found to be held.
	heldFor = 5 * time.Second
	// maxAside bounds the tasks that are set aside. If more are held, the others are late.
	maxAside = 10_000
	// asideParts is in how many parts what fails together is divided.
	asideParts = 4
)

// aside is what a scheduler has set aside, so that the others are on time: due tasks, some of
// which are held by somebody's open transaction. The database does not tell which: a batch that
// meets one fails as a whole. It is tried again in parts, one between two batches of the others,
// until each task that is held is alone.
type aside struct {
	groups []group
	keys   string    // as array literal; "": to be made again
	toldAt time.Time // when the logger was last told
}

// group is tasks that are tried together.
type group struct {
	tasks []dueTask
	held  bool      // it was found to be; then it is one task
	until time.Time // not before, by the monotonic clock
}

// dueTask is a task of which some timer is due.
type dueTask struct {
	key string // kind/biz_id
	at  time.Time
}

// wait is how long there is nothing to be tried.
func (a *aside) wait() time.Duration {
	wait := maxIdleLook
	for _, g := range a.groups {
		wait = min(wait, max(0, time.Until(g.until)))
	}
	return wait
}

// ready returns a group that is to be tried, -1 for none.
func (a *aside) ready() int {
	return slices.IndexFunc(a.groups, func(g group) bool { return !time.Now().Before(g.until) })
}

// add adds tasks, in parts.
func (a *aside) add(tasks []dueTask) {
	for part := range slices.Chunk(tasks, max(1, (len(tasks)+asideParts-1)/asideParts)) {
		a.groups = append(a.groups, group{tasks: part})
	}
	a.keys = ""
}

// remove forgets a group: whatever is left of it is one of the others again.
func (a *aside) remove(i int) {
	a.groups = slices.Delete(a.groups, i, i+1)
	a.keys = ""
}

// later puts a group off, behind all others: they have their turns however many there are.
func (a *aside) later(i int, g group, d time.Duration) {
	g.until = time.Now().Add(d)
	a.groups = append(slices.Delete(a.groups, i, i+1), g)
}

// removeHeld forgets the tasks that were found to be held.
func (a *aside) removeHeld() {
	a.groups = slices.DeleteFunc(a.groups, func(g group) bool { return g.held })
	a.keys = ""
}

// count returns how many tasks there are.
func (a *aside) count() (n int) {
	for _, g := range a.groups {
		n += len(g.tasks)
	}
	return n
}

// literal returns the keys of all tasks as array literal.
func (a *aside) literal() string {
	if a.keys == "" {
		var all []dueTask
		for _, g := range a.groups {
			all = append(all, g.tasks...)
		}
		a.keys = keysLiteral(all)
	}
	return a.keys
}

func keysLiteral(tasks []dueTask) string {
	var keys pgarray.Builder
	for _, t := range tasks {
		keys.Add(t.key)
	}
	return keys.String()
}

// setAside sets the next batch aside, which has just met a task that somebody holds.
func (s *Scheduler) setAside(ctx context.Context) (time.Duration, error) {
	limit := min(maxFiring, maxAside-s.aside.count())
	if limit == 0 {
		s.tellHeld(ctx)
		return maxIdleLook, nil
	}
	tasks, err := s.due(ctx, limit)
	if err == nil {
		s.aside.add(tasks)
	}
	return 0, err
}

// due returns the tasks of the next batch, in its order.
func (s *Scheduler) due(ctx context.Context, limit int) (tasks []dueTask, err error) {
	batch := &pgx.Batch{}
	batch.Queue(schedulerSettingsSQL, lockTimeout(firePatience), "off")
	batch.Queue(timersDueSQL, pgquery.Time(s.marks.next), int64(limit), s.aside.literal()).Query(func(rows pgx.Rows) error {
		tasks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t dueTask, err error) {
			err = row.Scan(&t.key, &t.at)
			return t, err
		})
		return err
	})
	return tasks, s.config.DB.SendBatch(ctx, batch).Close()
}

// tryAside tries a group of what was set aside, if it is time to.
func (s *Scheduler) tryAside(ctx context.Context) error {
	i := s.aside.ready()
	if i < 0 {
		return nil
	}
	g := s.aside.groups[i]
	f, err := s.fire(ctx, pgquery.Time(g.tasks[0].at), g.tasks)
	switch {
	case pgerr.Is(err, pgerr.LockNotAvailable) && len(g.tasks) > 1:
		s.aside.remove(i)
		s.aside.add(g.tasks)
	case pgerr.Is(err, pgerr.LockNotAvailable):
		g.held = true
		s.aside.later(i, g, heldFor)
		s.tellHeld(ctx)
	case err != nil:
		return err
	case f.elsewhere > 0: // another scheduler is at some of them, perhaps waiting
		s.aside.later(i, g, firePatience)
	case f.Timers > 0 && g.held: // what one transaction held is free together
		s.aside.removeHeld()
	default:
		s.aside.remove(i)
	}
	return nil
}

// tellHeld tells the logger, now and then, of what somebody holds.
func (s *Scheduler) tellHeld(ctx context.Context) {
	if time.Since(s.aside.toldAt) < heldFor {
		return
	}
	s.aside.toldAt = time.Now()
	i := slices.IndexFunc(s.aside.groups, func(g group) bool { return g.held })
	if i < 0 {
		i = 0
	}
	s.config.Logger.WarnContext(ctx, "somebody's open transaction holds tasks that are due",
		"task", s.aside.groups[i].tasks[0].key, "set_aside", s.aside.count(), "again_in", heldFor)
}
