package workers

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// hand is what a worker has in hand of one kind: every task with a message that it has not
// answered yet, from the arrival to the answer. No task is in a hand twice, so nothing is run
// twice at once in one process; further deliveries join the one in hand. It is safe for
// concurrent use.
type hand struct {
	nc   *nats.Conn
	open sync.WaitGroup // counts the tasks in hand
	pace pace

	mu      sync.Mutex
	slots   int // of the kind
	width   int // how many tasks a slot may run at a time
	tasks   map[ledger.Key]*held
	done    int                        // tasks whose handler is over, waiting for their outcome to be recorded
	bytes   int                        // of the payloads in hand
	waiting map[chan struct{}]struct{} // for room; each gets a token when there is
}

// held is one task in hand. Its message is constant, the rest guarded by the hand's mutex.
type held struct {
	msg         stream.Message
	redelivered bool

	deliveries []delivery // of the event in msg; all are answered alike
	others     []arrival  // other events of the task, decided when this one is answered
	done       bool       // its handler is over
	attempt    *attempt   // that began last; nil: none has
	recalled   bool       // its head may have moved on since it was decided
	alone      bool       // it shares no transaction any more; of its attempt, and not of the mutex
	first      [1]delivery
}

// delivered is how often the task's message was delivered, at the most.
func (h *held) delivered() uint64 {
	n := uint64(0)
	for _, d := range h.deliveries {
		n = max(n, d.count)
	}
	return n
}

// size is about how many bytes of memory the task's message takes.
func (h *held) size() int { return len(h.msg.Payload) + len(h.msg.Envelope) }

func newHand(nc *nats.Conn, slots, width int, ahead time.Duration) *hand {
	return &hand{nc: nc, pace: pace{within: ahead}, slots: slots, width: width, tasks: make(map[ledger.Key]*held), waiting: make(map[chan struct{}]struct{})}
}

// take takes a message in hand and returns the task if it was not in hand before. A delivery of
// the event that is in hand is adopted: it shares the fate of those before it. Another event of
// the same task waits: it may have come out of the very attempt that is just ending.
func (h *hand) take(a arrival) (task *held, adopted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	task = h.tasks[a.msg.Key]
	switch {
	case task == nil:
		task = &held{msg: a.msg, redelivered: a.delivery.count > 1, first: [1]delivery{a.delivery}}
		task.deliveries = task.first[:]
		h.tasks[a.msg.Key] = task
		h.bytes += task.size()
		h.open.Add(1)
		return task, false
	case task.msg.Version == a.msg.Version && task.msg.RecordedAt.Equal(a.msg.RecordedAt):
		task.deliveries = hold(task.deliveries, a.delivery)
		return nil, true
	}
	for i, other := range task.others {
		if other.delivery.sequence == a.delivery.sequence {
			task.others[i] = a
			return nil, true
		}
	}
	task.others = append(task.others, a)
	return nil, false
}

// put takes a task in hand that has no message.
func (h *hand) put(task *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks[task.msg.Key] = task
	h.bytes += task.size()
	h.open.Add(1)
}

// hold adds a delivery, which replaces an earlier one of the same message.
func hold(deliveries []delivery, d delivery) []delivery {
	for i := range deliveries {
		if deliveries[i].sequence == d.sequence {
			deliveries[i] = d
			return deliveries
		}
	}
	return append(deliveries, d)
}

// settle answers every delivery of a task and takes it out of the hand. What had to wait for
// it is given to next, before the hand can be found empty.
func (h *hand) settle(task *held, text []byte, next func(arrival)) {
	h.mu.Lock()
	delete(h.tasks, task.msg.Key)
	h.bytes -= task.size()
	if task.done {
		h.done--
	}
	h.wake()
	h.mu.Unlock()
	// Nobody else holds the task now.
	for _, d := range task.deliveries {
		answer(h.nc, d, text)
	}
	for _, a := range task.others {
		next(a)
	}
	h.open.Done()
}

// over makes room for another task although this one is still in hand: its handler is over.
func (h *hand) over(task *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !task.done {
		task.done = true
		h.done++
	}
	h.wake()
}

// full reports whether there is no room.
func (h *hand) full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.room().tasks == 0
}

// setSlots follows the kind's slots. What is in hand stays.
func (h *hand) setSlots(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots = n
	h.wake()
}

// room is for how much more there is room.
type room struct {
	tasks int
	bytes int // of their messages, if there are more of them than slots; 0: any
}

// room returns for how much more there is room in all: nothing, unless a slot would be free or it is
// worth asking. h.mu is held.
func (h *hand) room() room {
	limit := h.slots + h.pace.ahead(h.slots*h.width)
	have := len(h.tasks) - h.done
	free := h.slots - have
	bytes := aheadBytes - h.bytes
	switch n := limit - have; {
	case n <= 0, free <= 0 && n < (limit+3)/4:
		return room{}
	case n > free && bytes > int(h.nc.MaxPayload())+headBytes:
		return room{n, bytes}
	case free > 0:
		return room{tasks: free}
	}
	return room{}
}

// wake wakes those who wait for room, if there is. h.mu is held.
func (h *hand) wake() {
	if len(h.waiting) == 0 || h.room().tasks == 0 {
		return
	}
	for c := range h.waiting {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	clear(h.waiting)
}

// roomFor returns for how much one of so many pairs of consumers may ask at a time: requests of idle
// shards stay open, and together they must not bring in much more than there is room for. If there
// is no room, c, which has room for one token, gets one as soon as there is.
func (h *hand) roomFor(c chan struct{}, pairs int) room {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.room()
	if r.tasks == 0 {
		h.waiting[c] = struct{}{}
		return r
	}
	limit := h.slots + h.pace.ahead(h.slots*h.width)
	r.tasks = min(r.tasks, (limit+pairs-1)/pairs)
	return r
}

// stopWaiting undoes roomFor.
func (h *hand) stopWaiting(c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, c)
}

// holds reports whether a task in one of these shards is in hand.
func (h *hand) holds(shards ledger.ShardSet) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, task := range h.tasks {
		if shards.Has(task.msg.Shard) {
			return true
		}
	}
	return false
}

// begin notes that an attempt begins. It reports whether its head may have moved on meanwhile.
func (h *hand) begin(a *attempt) (recalled bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.held.attempt = a
	return a.held.recalled
}

// recall returns the attempt that has begun at a task in hand. If none has, the task is decided
// again before one does.
func (h *hand) recall(k ledger.Key) *attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	task := h.tasks[k]
	if task == nil {
		return nil
	}
	task.recalled = true
	return task.attempt
}

// begun returns the last attempts that began at what is in hand.
func (h *hand) begun() []*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*attempt
	for _, task := range h.tasks {
		if task.attempt != nil {
			all = append(all, task.attempt)
		}
	}
	return all
}

// isRecalled reports whether the task has to be decided again before it is begun.
func (h *hand) isRecalled(task *held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return task.recalled
}

// again undoes over: the task will be decided once more.
func (h *hand) again(task *held) {
	h.mu.Lock()
	task.recalled, task.attempt = false, nil
	if task.done {
		task.done = false
		h.done--
	}
	h.mu.Unlock()
}

// size is the number of tasks in hand, and of the bytes of their payloads.
func (h *hand) size() (tasks, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tasks), h.bytes
}

// deliveriesOf returns how often the task was delivered, at the most.
func (h *hand) deliveriesOf(task *held) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return task.delivered()
}

// lastDelivery returns the delivery of the task that came last.
func (h *hand) lastDelivery(task *held) delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return task.deliveries[len(task.deliveries)-1]
}

// beat tells the server that everything in hand is being worked on, so that it is not
// delivered again: what waits for a slot or for another event of its task, too.
func (h *hand) beat() {
	h.mu.Lock()
	var all []delivery
	for _, task := range h.tasks {
		all = append(all, task.deliveries...)
		for _, a := range task.others {
			all = append(all, a.delivery)
		}
	}
	h.mu.Unlock()
	for _, d := range all {
		answer(h.nc, d, progressAnswer)
	}
}
