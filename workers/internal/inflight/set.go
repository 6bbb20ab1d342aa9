// Package inflight holds the tasks that a worker has in flight: from their arrival to the record of their outcome. A
// task is in flight at most once per process, so nothing runs twice at once there.
package inflight

import (
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Set is the tasks of one kind in flight. A is the type of attempts. It is safe for concurrent use.
type Set[A any] struct {
	config Config     // constant
	pace   pace       // safe for concurrent use
	ended  *sync.Cond // on mu: open is 0

	mu    sync.Mutex // guards the fields below, and the tasks' fields
	slots int        // of the kind
	tasks map[ledger.BizID]*Task[A]
	open  int // number of tasks, including tasks that are just ending
	done  int // tasks whose handler has returned and whose outcome is not recorded
	bytes int // of the payloads
}

// Task is one task in flight. Message and IsAgain are constant, except for [Set.Correct] and [Set.Done]. Started and
// Alone belong to the owner of the task's attempt.
type Task[A any] struct {
	Message stream.Message
	IsAgain bool // it may have begun elsewhere
	Alone   bool // its attempts share no transaction any more
	// LacksArgs is set while the args of an offered task are to be read from the ledger. It belongs to the goroutine
	// that decides the task, and then to the owner of the attempt.
	LacksArgs bool
	// Started is the version of the last start that was recorded here before a handler; 0: none. If the head is older,
	// the database has lost the start.
	Started ledger.Version

	// Guarded by the mutex of the set, until End removes the task.
	isDone     bool // its handler has returned
	isRecalled bool // its head may be out of date
	hasBegun   bool // attempt is set
	attempt    A    // the last attempt that began
	holds      int  // how often it was decided again
}

// Config of a [Set].
type Config struct {
	Slots int
	// Width is the number of tasks that a slot may run in one transaction.
	Width int
	// Ahead is how much work may be in flight beyond the slots. Default: [AheadTime].
	Ahead time.Duration
	// Ended is called for a task that is no longer in flight; isGivenBack: it may begin elsewhere. Nil is skipped.
	Ended func(k ledger.Key, isGivenBack bool)
	// HasRoom is called when there may be room for further tasks, with what [Set.Wanted] returns. The set is locked
	// meanwhile. Nil is skipped.
	HasRoom func(n, limit int)
}

// New returns an empty set.
func New[A any](c Config) *Set[A] {
	if c.Ahead == 0 {
		c.Ahead = AheadTime
	}
	s := &Set[A]{
		config: c, pace: pace{within: c.Ahead}, slots: c.Slots, tasks: make(map[ledger.BizID]*Task[A]),
	}
	s.ended = sync.NewCond(&s.mu)
	return s
}

// Add adds a task, with args or without, and returns it; nil if it is in flight. isAgain: it may have begun elsewhere.
func (s *Set[A]) Add(m stream.Message, isAgain, lacksArgs bool) *Task[A] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[m.BizID] != nil {
		return nil
	}
	task := &Task[A]{Message: m, IsAgain: isAgain, LacksArgs: lacksArgs}
	s.tasks[m.BizID] = task
	s.bytes += task.size()
	s.open++
	return task
}

// Correct replaces the handler's input. Call it before an attempt begins.
func (s *Set[A]) Correct(task *Task[A], payload []byte, envelope string, finishBy time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= task.size()
	task.Message.Payload, task.Message.Envelope, task.Message.FinishBy = payload, envelope, finishBy
	s.bytes += task.size()
}

// size returns about how many bytes of memory the args take.
func (t *Task[A]) size() int { return len(t.Message.Payload) + len(t.Message.Envelope) }

// End removes a task whose outcome is recorded, or that needs none here.
func (s *Set[A]) End(task *Task[A]) { s.remove(task, false) }

// GiveBack removes a task that may begin elsewhere.
func (s *Set[A]) GiveBack(task *Task[A]) { s.remove(task, true) }

func (s *Set[A]) remove(task *Task[A], isGivenBack bool) {
	s.mu.Lock()
	delete(s.tasks, task.Message.BizID)
	s.bytes -= task.size()
	if task.isDone {
		s.done--
	}
	s.mu.Unlock()
	if s.config.Ended != nil {
		s.config.Ended(task.Message.Key, isGivenBack)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteRoom()
	if s.open--; s.open == 0 {
		s.ended.Broadcast()
	}
}

// Hold counts that a task in flight is to be decided again, and returns the delay until then. The delay grows each
// time, up to most.
func (s *Set[A]) Hold(task *Task[A], most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	delay := min(minHold<<min(task.holds, 10), most)
	task.holds++
	return delay
}

const minHold = 50 * time.Millisecond

// Wait returns when the set is empty. Tasks may be added meanwhile.
func (s *Set[A]) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.open > 0 {
		s.ended.Wait()
	}
}

// Begin stores the attempt that begins. It reports whether the task was recalled before.
func (s *Set[A]) Begin(task *Task[A], attempt A) (recalled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	task.attempt, task.hasBegun = attempt, true
	return task.isRecalled
}

// Done records that the handler of a task has returned, which makes room for another task. An offered task drops its
// args; they are read again if it is decided again.
func (s *Set[A]) Done(task *Task[A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !task.isDone {
		task.isDone = true
		s.done++
		s.dropArgs(task)
		s.noteRoom()
	}
}

// dropArgs drops the args of an offered task, which are read again if it is decided again. The caller holds mu.
func (s *Set[A]) dropArgs(task *Task[A]) {
	if s.config.HasRoom != nil {
		s.bytes -= task.size()
		task.Message.Payload, task.LacksArgs = nil, true
		s.bytes += task.size()
	}
}

// Reset undoes Begin, Done and Recall: the head of the task will be read again. So are its args, which a producer may
// have replaced.
func (s *Set[A]) Reset(task *Task[A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var zero A
	task.isRecalled, task.hasBegun, task.attempt = false, false, zero
	s.dropArgs(task)
	if task.isDone {
		task.isDone = false
		s.done--
	}
}

// Recall marks a task whose head may be out of date. It returns the attempt that has begun. If none has begun, it
// returns false, and the head is read again first.
func (s *Set[A]) Recall(id ledger.BizID) (attempt A, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	task := s.tasks[id]
	if task == nil {
		return attempt, false
	}
	task.isRecalled = true
	return task.attempt, task.hasBegun
}

// IsRecalled reports whether the head of a task may be out of date.
func (s *Set[A]) IsRecalled(task *Task[A]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return task.isRecalled
}

// Begun returns the last attempts that began at the tasks in flight.
func (s *Set[A]) Begun() []A {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []A
	for _, task := range s.tasks {
		if task.hasBegun {
			all = append(all, task.attempt)
		}
	}
	return all
}

// Size returns the number of tasks, and of the bytes of their payloads.
func (s *Set[A]) Size() (tasks, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks), s.bytes
}

// NotePace adds the time from the arrival of a task to the end of its attempt to the average that limits how many
// tasks are in flight beyond the slots.
func (s *Set[A]) NotePace(d time.Duration) { s.pace.note(d) }

// SetPace replaces that average.
func (s *Set[A]) SetPace(d time.Duration) { s.pace.average.Store(int64(d)) }
