package scheduler

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/nextrun"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/awaiting.sql
	awaitingSQL string
	//go:embed sql/awaiting_remove.sql
	awaitingRemoveSQL string
	//go:embed sql/next_begin.sql
	nextBeginSQL string
)

// pointAwaited is a crash point: tasks have been made available or cancelled, and their timers still exist.
const pointAwaited = "scheduler.awaited"

const (
	// awaitingPage is how many waiting tasks one statement reads, and how many are decided at once.
	awaitingPage = 500
	// awaitingHeads is how many predecessors one statement reads.
	awaitingHeads = 5000
	// awaitingEvery is the least time between two checks for waiting tasks, while none waits.
	awaitingEvery = 100 * time.Millisecond
	// awaitingGather and awaitingIdle are the least and the longest time between two windows of the events that end a
	// wait.
	awaitingGather = 10 * time.Millisecond
	awaitingIdle   = 40 * time.Millisecond
	// awaitingTurn is how long a walk reads the tasks of one kind before it goes on with the next kind.
	awaitingTurn = 50 * time.Millisecond
	// walkEvery is the pause between two walks if all waiting tasks are known.
	walkEvery = 10 * time.Second
	// walkShare: otherwise walks take at most one part in walkShare of the time, unless the pause exceeds maxWalkRest.
	walkShare   = 4
	maxWalkRest = time.Second
	// awaitingRetry is the pause after a failed decision, and between two log lines.
	awaitingRetry = time.Second
)

// dependents makes tasks available whose predecessors have succeeded ([ledger.EnqueueOptions].After), or cancels them.
//
// While tasks wait, it follows the events of the ledger from the present on. When a task finishes, it decides the
// tasks that wait for it, then their successors, so that a chain takes time proportional to its length.
//
// A walk reads the waiting tasks, by their timers, and decides each: at the beginning, for everything that happened
// before, and then at intervals. So a task is never too late for a predecessor that finished before its successor was
// enqueued, or while no scheduler ran. The memory may be incomplete: walks find the tasks that do not fit in
// ([maxSuccessors]), and then follow each other soon.
//
// Two predecessors that finish at the same moment need not know of each other. The append is a compare-and-set on
// version 1; the next walk removes a timer that is left behind. The end of a task never waits for a lock of this
// service.
//
// Every kind gets its turn. A walk reads the tasks of a kind for a limited time, and the next walk continues there. A
// batch of decisions takes one task of each kind before it takes a second one.
//
// The goroutine of run uses it.
type dependents struct {
	config Config
	wanted request
	turn   time.Duration // [awaitingTurn], changed by tests

	known successors
	due   turns        // to be decided
	gone  []ledger.Key // of timers to be removed
	retry turns        // to be decided again at retryAt
	walk  walk

	retryAt, warnedAt time.Time
}

// walk is a pass over all waiting tasks.
type walk struct {
	from      ledger.Key                   // the last task read
	places    map[ledger.Kind]ledger.BizID // by kind that the walk has not read to its end: the last task read
	turn      time.Time                    // when the turn of from.Kind began
	read      int                          // tasks
	isPartial bool                         // a turn has ended, or not all tasks are known
	cost      time.Duration
	at        time.Time // when the next one begins, or this one continues
}

func newAwaiting(c Config) dependents {
	return dependents{
		config: c, wanted: newRequest(), turn: awaitingTurn, known: newSuccessors(maxSuccessors),
		walk: walk{places: make(map[ledger.Kind]ledger.BizID)},
	}
}

// run works until ctx is done. It logs errors, and retries.
func (a *dependents) run(ctx context.Context) {
	_ = loop.Steps{ // without Stop it returns nil
		Step: func(ctx context.Context) (time.Duration, error) {
			a.wanted.await(ctx, unasked)
			return awaitingEvery, a.follow(ctx)
		},
		Failed: func(ctx context.Context, err error, in time.Duration) {
			a.config.Logger.WarnContext(ctx, "cannot release tasks after their predecessors; retrying",
				"error", err, "retry_in", in)
		},
	}.Run(ctx)
}

// errNothingWaits ends the work of follow.
var errNothingWaits = errors.New("no task waits for predecessors")

// follow works until no task waits, or until an error after which events may be missed.
func (a *dependents) follow(ctx context.Context) error {
	if page, err := a.read(ctx, ledger.Key{}); err != nil || len(page) == 0 {
		return err
	}
	o := &feed.Options{Gather: awaitingGather, Idle: awaitingIdle, Logger: a.config.Logger}
	tail, err := feed.Tail(ctx, a.config.DB, o)
	if err != nil {
		return fmt.Errorf("follow the ends of predecessors: %w", err)
	}
	a.reset()
	pages := make(chan feed.Page)
	read := func(ctx context.Context) error {
		for {
			page, err := tail.Next(ctx)
			if err != nil {
				return err
			}
			select {
			case pages <- page:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	work := func(ctx context.Context) error { return a.work(ctx, pages) }
	if err := loop.Together(ctx, read, work); !errors.Is(err, errNothingWaits) {
		return err
	}
	return nil
}

// reset forgets everything, so that the next walk reads all tasks.
func (a *dependents) reset() {
	places := a.walk.places // otherwise a walk that is often interrupted would never reach the last tasks
	a.known, a.due, a.gone, a.retry = newSuccessors(a.known.limit), turns{}, nil, turns{}
	a.walk = walk{places: places}
}

// work decides tasks as events and walks require, until an error.
func (a *dependents) work(ctx context.Context, pages <-chan feed.Page) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var ready <-chan time.Time // a batch waits
		if a.due.n > 0 {
			ready = closedTimer
		}
		timer.Reset(max(0, time.Until(a.nextAt())))
		select {
		case page := <-pages:
			a.note(page.Events)
		case <-ready:
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		faults, err := a.decideNext(ctx)
		if err != nil {
			return err
		}
		if len(faults) > 0 && time.Since(a.warnedAt) >= awaitingRetry {
			a.warnedAt = time.Now()
			a.config.Logger.WarnContext(ctx, "cannot release tasks after their predecessors; retrying",
				"error", errors.Join(faults...), "retry_in", awaitingRetry)
		}
		if time.Now().Before(a.walk.at) || a.due.n >= awaitingPage {
			continue
		}
		if isAtEnd, err := a.walkOn(ctx); err != nil || isAtEnd && a.endWalk() {
			return cmp.Or(err, errNothingWaits)
		}
	}
}

// closedTimer is always ready.
var closedTimer = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// nextAt returns when the walk or a retry is due.
func (a *dependents) nextAt() time.Time {
	if a.retry.n > 0 && a.retryAt.Before(a.walk.at) {
		return a.retryAt
	}
	return a.walk.at
}

// note queues the tasks whose predecessors are in events, and new waiting tasks.
func (a *dependents) note(events []ledger.Event) {
	for i := range events {
		e := &events[i]
		if known := a.known.waiting[e.Key]; known != nil && e.Version > known.version {
			a.end(e.Key)
		}
		if after := e.Awaited(); len(after.Keys) > 0 {
			key := ledger.Key{ // a copy: the event's page is not kept
				Kind:  ledger.Kind(strings.Clone(string(e.Kind))),
				BizID: ledger.BizID(strings.Clone(string(e.BizID))),
			}
			if a.known.makeRoom(len(after.Keys)) {
				a.walkSoon()
			}
			a.meet(&successor{key: key, version: e.Version, after: after})
		}
		if e.Type.State().Finished() {
			a.noteEnd(e.Key)
		}
	}
}

// noteEnd queues the successors of a finished task.
func (a *dependents) noteEnd(k ledger.Key) {
	for s := range a.known.of[k] {
		a.due.add(s)
	}
}

// meet queues a waiting task, and keeps it in memory if there is room.
func (a *dependents) meet(s *successor) {
	if !a.known.add(s) {
		a.walkSoon()
	}
	a.due.add(s)
}

// walkSoon schedules the next walk soon, for tasks that are not in memory.
func (a *dependents) walkSoon() {
	a.walk.isPartial = true
	if at := time.Now().Add(maxWalkRest); at.Before(a.walk.at) {
		a.walk.at = at
	}
}

// end forgets a task that has moved on.
func (a *dependents) end(k ledger.Key) {
	a.known.remove(k)
	a.gone = append(a.gone, k)
}

// endWalk plans the next walk, and reports whether no task waits.
func (a *dependents) endWalk() (isIdle bool) {
	w := a.walk
	rest := walkEvery
	if w.isPartial {
		rest = max(awaitingEvery, loop.Rest(w.cost, walkShare, maxWalkRest))
	}
	a.walk = walk{places: w.places, at: time.Now().Add(rest)}
	return w.read == 0 && len(a.known.waiting) == 0 && a.due.n == 0
}

// walkOn reads and queues the next page of waiting tasks. It reports whether the walk is at its end.
func (a *dependents) walkOn(ctx context.Context) (isAtEnd bool, err error) {
	w, begun := &a.walk, time.Now()
	page, err := a.read(ctx, w.from)
	if err != nil {
		return false, err
	}
	for _, s := range page {
		if s.hasMoved {
			a.gone = append(a.gone, s.key)
			if known := a.known.waiting[s.key]; known != nil && known.version <= s.version {
				a.known.remove(s.key)
			}
		} else {
			a.meet(s)
		}
	}
	w.cost += time.Since(begun)
	if w.read += len(page); len(page) < awaitingPage {
		delete(w.places, w.from.Kind)
		return true, nil
	}
	last := page[len(page)-1].key
	switch {
	case last.Kind != w.from.Kind: // the turn of the page's last kind begins
		delete(w.places, w.from.Kind)
		w.from, w.turn = ledger.Key{Kind: last.Kind, BizID: max(last.BizID, w.places[last.Kind])}, time.Now()
	case time.Since(w.turn) < a.turn:
		w.from = last
	default:
		w.places[last.Kind], w.isPartial = last.BizID, true
		w.from = ledger.Key{Kind: last.Kind + "\x01"} // before every other kind that follows
	}
	return false, nil
}

// read returns the next page of waiting tasks after a key.
func (a *dependents) read(ctx context.Context, last ledger.Key) (page []*successor, err error) {
	batch := &pgx.Batch{}
	batch.Queue(settingsSQL, lockTimeout(batchPatience), "on")
	statement := batch.Queue(awaitingSQL, string(last.Kind), string(last.BizID), int64(awaitingPage))
	statement.Query(func(rows pgx.Rows) error {
		var s successor
		var first ledger.Event
		_, err := pgx.ForEachRow(rows, []any{
			(*string)(&s.key.Kind), (*string)(&s.key.BizID), (*int32)(&s.version), &s.hasMoved, &first.Run,
			(*string)(&first.Type), (*[]byte)(&first.Meta),
		}, func() error {
			first.Version = s.version
			s.after = first.Awaited()
			found := s
			page = append(page, &found)
			first.Meta = nil
			return nil
		})
		return err
	})
	if err := a.config.DB.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read tasks with predecessors: %w", err)
	}
	return page, nil
}

// decideNext decides a batch of queued tasks, and removes the timers of tasks that have moved on. It returns the errors
// of single tasks, which it queues again later.
func (a *dependents) decideNext(ctx context.Context) (faults []error, err error) {
	if a.retry.n > 0 && !time.Now().Before(a.retryAt) {
		for _, s := range a.retry.take(a.retry.n) {
			a.due.add(s)
		}
	}
	begun := time.Now()
	if faults, err = a.decide(ctx, a.due.take(awaitingPage)); err != nil {
		return nil, err
	}
	a.walk.cost += time.Since(begun)
	for len(a.gone) > 0 {
		var kinds, ids pgarray.Builder
		n := min(len(a.gone), awaitingPage)
		for _, k := range a.gone[:n] {
			kinds.Add(string(k.Kind))
			ids.Add(string(k.BizID))
		}
		if _, err := a.config.DB.Exec(ctx, awaitingRemoveSQL, kinds.String(), ids.String()); err != nil {
			return faults, fmt.Errorf("remove timers: %w", err)
		}
		a.gone = a.gone[n:]
	}
	return faults, nil
}

// decide appends the events that end the wait of tasks.
func (a *dependents) decide(ctx context.Context, tasks []*successor) (faults []error, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	states, err := a.states(ctx, tasks)
	if err != nil {
		return nil, err
	}
	var requests []ledger.AppendRequest
	var ready []*successor
	for _, s := range tasks {
		r, ok := s.verdict(states)
		switch {
		case ok && s.key.Kind == nextrun.Kind:
			if err := a.beginNext(ctx, s); err != nil {
				faults = append(faults, err)
			}
		case ok:
			requests, ready = append(requests, r), append(ready, s)
		}
	}
	for i, r := range ledger.AppendEach(ctx, a.config.DB, requests) {
		s := ready[i]
		switch {
		case r.Err == nil || ledger.IsConflict(r.Err):
			a.end(s.key)
			if r.Err == nil && requests[i].Type.State().Finished() {
				a.noteEnd(s.key) // its event follows later
			}
		default:
			faults = append(faults, r.Err)
			a.retryLater(s)
		}
	}
	if len(requests) > 0 {
		fault.Point(pointAwaited)
	}
	return faults, nil
}

// retryLater queues a task whose decision has failed.
func (a *dependents) retryLater(s *successor) {
	if a.retry.n == 0 {
		a.retryAt = time.Now().Add(awaitingRetry)
	}
	a.retry.add(s)
}

// beginNext begins the run that waits behind the last run of another task: see package internal/nextrun. It returns an
// error if that has failed and is tried again.
func (a *dependents) beginNext(ctx context.Context, s *successor) error {
	of := s.after.Keys[0]
	var isOver bool
	err := a.execute(ctx, nextBeginSQL, []any{string(of.Kind), string(of.BizID)}, &isOver)
	switch {
	case err != nil:
		a.retryLater(s)
		return fmt.Errorf("begin the next run of %s: %w", of, err)
	case isOver:
		a.end(s.key)
	default: // another run has begun
		a.known.add(s)
	}
	return nil
}

// execute runs a statement that returns one row, in a transaction of its own with the settings of the scheduler.
func (a *dependents) execute(ctx context.Context, sql string, args []any, into ...any) error {
	batch := &pgx.Batch{}
	batch.Queue(settingsSQL, lockTimeout(batchPatience), "on")
	batch.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(into...) })
	return a.config.DB.SendBatch(ctx, batch).Close()
}

// states returns the states of the predecessors of tasks.
func (a *dependents) states(ctx context.Context, tasks []*successor) (map[ledger.Key]ledger.State, error) {
	all := make(map[ledger.Key]ledger.State)
	var keys []ledger.Key
	for _, s := range tasks {
		for _, k := range s.after.Keys {
			if _, ok := all[k]; !ok {
				all[k] = ledger.StateNone
				keys = append(keys, k)
			}
		}
	}
	for part := range slices.Chunk(keys, awaitingHeads) {
		states, err := ledger.States(ctx, a.config.DB, part)
		if err != nil {
			return nil, err
		}
		for k, state := range states {
			all[k] = state
		}
	}
	return all, nil
}

// verdict returns the event that ends a task's wait, if its wait is over. A task whose predecessors cannot be read
// waits for an operator.
func (s *successor) verdict(states map[ledger.Key]ledger.State) (ledger.AppendRequest, bool) {
	r := ledger.AppendRequest{Key: s.key, Expected: s.version, Actor: "scheduler"}
	finished, succeeded := 0, 0
	for _, k := range s.after.Keys {
		state := states[k]
		if !state.Finished() {
			continue
		}
		finished++
		if state == ledger.StateSucceeded {
			succeeded++
		} else if s.after.Otherwise == ledger.OtherwiseCancel {
			r.Type, r.Data = ledger.EventCancelled, reasonData(fmt.Sprintf("its predecessor %s is %s", k, state))
			return r, true
		}
	}
	n := len(s.after.Keys)
	if n == 0 || succeeded < n && (s.after.Otherwise != ledger.OtherwiseRun || finished < n) {
		return r, false
	}
	r.Type, r.Data = ledger.EventReleased, reasonData("after")
	return r, true
}

// reasonData returns the data of an event with a reason.
func reasonData(reason string) json.RawMessage {
	data, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil { // a string encodes
		panic(err)
	}
	return data
}
