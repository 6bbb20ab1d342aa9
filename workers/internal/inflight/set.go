// Package inflight holds the tasks that a worker has in flight: from the arrival of a message to its
// answer. A task is in flight at most once per process, so nothing runs twice at once there.
package inflight

import (
	"bytes"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// Set is the tasks of one kind in flight. A is the type of attempts. It is safe for concurrent use.
type Set[A any] struct {
	nc   *nats.Conn     // constant
	next func(Arrival)  // constant
	open sync.WaitGroup // counts the tasks
	pace pace           // safe for concurrent use
	acks acks           // safe for concurrent use
	ends func(ledger.Key, bool)

	mu      sync.Mutex // guards the fields below, and those of the tasks
	slots   int        // of the kind
	width   int        // tasks that a slot may run in one transaction
	tasks   map[ledger.BizID]*Task[A]
	done    int                        // tasks whose handler has returned, and whose outcome is not recorded yet
	bytes   int                        // of the payloads
	waiting map[chan struct{}]struct{} // channels that get a token when there is room
}

// Task is one task in flight. Message and Redelivered are constant, except for [Set.Correct] and [Set.Done]. The owner
// of the task's attempt uses Started and Alone.
type Task[A any] struct {
	Message     stream.Message
	Redelivered bool // the first delivery here was a redelivery
	Alone       bool // its attempts share no transaction any more
	// LacksArgs is set while the args of an offered task are to be read from the ledger. The goroutine that decides the
	// task uses it, and then the owner of the attempt.
	LacksArgs bool
	// Started is the version of the last start that was recorded here before a handler; 0: none. An older head of the
	// task is that of a database that has lost the start.
	Started ledger.Version

	// Guarded by the mutex of the set, until Answer removes the task.
	isDone     bool        // its handler has returned
	isRecalled bool        // its head may have moved on since it was read
	hasBegun   bool        // attempt is set
	attempt    A           // the last one that began
	holds      int         // how often it was held
	deliveries []Delivery  // of Message; all are answered alike
	others     []Arrival   // messages of other events of the task; they are read when this one is answered
	first      [1]Delivery // memory of deliveries
}

// Config of a [Set].
type Config struct {
	NATS  *nats.Conn
	Slots int
	// Width is the number of tasks that a slot may run in one transaction.
	Width int
	// Ahead is how much work may be in flight beyond the slots. Default: [AheadTime].
	Ahead time.Duration
	// Next adds a message that waited for another one of its task.
	Next func(Arrival)
	// Ends is called for a task that was offered by a dispatcher and is no longer in flight; its key, and whether it is
	// given back. Nil: tasks come from messages, which are answered.
	Ends func(k ledger.Key, isGivenBack bool)
}

// New returns an empty set.
func New[A any](c Config) *Set[A] {
	if c.Ahead == 0 {
		c.Ahead = AheadTime
	}
	return &Set[A]{
		nc: c.NATS, next: c.Next, ends: c.Ends, pace: pace{within: c.Ahead}, slots: c.Slots, width: c.Width,
		acks: acks{delay: ackDelay}, tasks: make(map[ledger.BizID]*Task[A]), waiting: make(map[chan struct{}]struct{}),
	}
}

// Correct replaces the parts of a task's message that a handler gets. It must be called before an attempt begins.
func (s *Set[A]) Correct(task *Task[A], payload []byte, envelope string, finishBy time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= task.size()
	task.Message.Payload, task.Message.Envelope, task.Message.FinishBy = payload, envelope, finishBy
	s.bytes += task.size()
}

// size returns about how many bytes of memory the message takes.
func (t *Task[A]) size() int { return len(t.Message.Payload) + len(t.Message.Envelope) }

// Add adds a message and returns its task if it was not in flight. Another delivery of the message in flight is
// adopted: it is answered with those before it. Another event of the same task waits, since it may come from the
// attempt that is just ending.
func (s *Set[A]) Add(a Arrival) (task *Task[A], adopted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	task = s.tasks[a.Message.BizID]
	switch {
	case task == nil:
		task = &Task[A]{Message: a.Message, Redelivered: a.Delivery.Count > 1, first: [1]Delivery{a.Delivery}}
		task.deliveries = task.first[:]
		s.put(task)
		return task, false
	case task.Message.Version == a.Message.Version && task.Message.RecordedAt.Equal(a.Message.RecordedAt):
		task.deliveries = replaceOrAppend(task.deliveries, a.Delivery)
		return nil, true
	}
	for i, other := range task.others {
		if other.Delivery.Sequence == a.Delivery.Sequence {
			task.others[i] = a
			return nil, true
		}
	}
	task.others = append(task.others, a)
	return nil, false
}

// HasMessages reports whether the tasks come from messages.
func (s *Set[A]) HasMessages() bool { return s.ends == nil }

// AddOffered adds a task that a dispatcher has offered, with args or without, and returns it; nil if it is in flight.
func (s *Set[A]) AddOffered(m stream.Message, isAgain, lacksArgs bool) *Task[A] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[m.BizID] != nil {
		return nil
	}
	task := &Task[A]{Message: m, Redelivered: isAgain, LacksArgs: lacksArgs}
	s.put(task)
	return task
}

// AddWithoutDelivery adds a task that was not delivered by a message.
func (s *Set[A]) AddWithoutDelivery(m stream.Message) *Task[A] {
	s.mu.Lock()
	defer s.mu.Unlock()
	task := &Task[A]{Message: m}
	s.put(task)
	return task
}

// put adds a task. s.mu is held.
func (s *Set[A]) put(task *Task[A]) {
	s.tasks[task.Message.BizID] = task
	s.bytes += task.size()
	s.open.Add(1)
}

// replaceOrAppend adds a delivery, which replaces an earlier one of the same message.
func replaceOrAppend(deliveries []Delivery, d Delivery) []Delivery {
	for i := range deliveries {
		if deliveries[i].Sequence == d.Sequence {
			deliveries[i] = d
			return deliveries
		}
	}
	return append(deliveries, d)
}

// Answer answers every delivery of a task, and removes the task. It passes messages that waited for the task to
// [Config].Next before Wait can return.
func (s *Set[A]) Answer(task *Task[A], text []byte) {
	s.mu.Lock()
	delete(s.tasks, task.Message.BizID)
	s.bytes -= task.size()
	if task.isDone {
		s.done--
	}
	s.wake()
	s.mu.Unlock()
	// The task is out of reach of other goroutines now.
	if s.ends != nil {
		s.ends(task.Message.Key, !bytes.Equal(text, stream.AckAnswer))
		s.open.Done()
		return
	}
	for _, d := range task.deliveries {
		if bytes.Equal(text, stream.AckAnswer) {
			s.acks.add(s.nc, d)
			continue
		}
		Answer(s.nc, d, text)
	}
	for _, a := range task.others {
		s.next(a)
	}
	s.open.Done()
}

// GiveBack has the message of a task redelivered at once.
func (s *Set[A]) GiveBack(task *Task[A]) { s.Answer(task, stream.NakAnswer) }

// Redeliver has the message of a task redelivered after a delay that grows each time, up to most. A longer delay
// would let the waiting messages use up MaxAckPending.
func (s *Set[A]) Redeliver(task *Task[A], most time.Duration) {
	n := min(s.deliveries(task), 10)
	s.Answer(task, stream.NakAfter(min(minRedelivery<<n, most)))
}

const minRedelivery = 50 * time.Millisecond

// Hold keeps a task in flight that is to be decided again, and returns after which delay: it grows each time, up to
// most.
func (s *Set[A]) Hold(task *Task[A], most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	delay := min(minRedelivery<<min(task.holds, 10), most)
	task.holds++
	return delay
}

// IsHeld reports whether a task was held.
func (s *Set[A]) IsHeld(task *Task[A]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return task.holds > 0
}

// Wait returns when the set is empty and its answers are sent.
func (s *Set[A]) Wait() {
	s.open.Wait()
	s.acks.send(s.nc)
}

// Begin stores the attempt that begins. It reports whether the task was recalled meanwhile.
func (s *Set[A]) Begin(task *Task[A], attempt A) (recalled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	task.attempt, task.hasBegun = attempt, true
	return task.isRecalled
}

// Done records that the handler of a task has returned, which makes room for another task. An offered task needs its
// args no more, unless it is decided again.
func (s *Set[A]) Done(task *Task[A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !task.isDone {
		task.isDone = true
		s.done++
		if s.ends != nil {
			s.bytes -= task.size()
			task.Message.Payload, task.LacksArgs = nil, true
			s.bytes += task.size()
			s.ends(ledger.Key{}, false)
		}
	}
	s.wake()
}

// Reset undoes Begin, Done and Recall: the head of the task will be read again.
func (s *Set[A]) Reset(task *Task[A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var zero A
	task.isRecalled, task.hasBegun, task.attempt = false, false, zero
	if task.isDone {
		task.isDone = false
		s.done--
	}
}

// Recall marks a task whose head may have moved on. It returns the attempt at it that has begun. If none has, it
// returns false, and the head is read again before one begins.
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

// IsRecalled reports whether the head of a task may have moved on.
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

// HasShards reports whether a task in one of these shards is in flight.
func (s *Set[A]) HasShards(shards ledger.ShardSet) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, task := range s.tasks {
		if shards.Has(task.Message.Shard) {
			return true
		}
	}
	return false
}

// Size returns the number of tasks, and of the bytes of their payloads.
func (s *Set[A]) Size() (tasks, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks), s.bytes
}

// deliveries returns the highest delivery count of a task's message.
func (s *Set[A]) deliveries(task *Task[A]) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := uint64(0)
	for _, d := range task.deliveries {
		n = max(n, d.Count)
	}
	return n
}

// LastDelivery returns the newest delivery of a task.
func (s *Set[A]) LastDelivery(task *Task[A]) Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return task.deliveries[len(task.deliveries)-1]
}

// Heartbeat keeps the server from redelivering messages in flight, including those that wait for a slot or for
// another event of their task.
func (s *Set[A]) Heartbeat() {
	s.mu.Lock()
	var all []Delivery
	for _, task := range s.tasks {
		all = append(all, task.deliveries...)
		for _, a := range task.others {
			all = append(all, a.Delivery)
		}
	}
	s.mu.Unlock()
	for _, d := range all {
		Answer(s.nc, d, stream.ProgressAnswer)
	}
}

// NotePace adds the time from the arrival of a task to the end of its attempt to the average that limits the tasks
// beyond the slots.
func (s *Set[A]) NotePace(d time.Duration) { s.pace.note(d) }

// SetPace replaces that average.
func (s *Set[A]) SetPace(d time.Duration) { s.pace.average.Store(int64(d)) }
