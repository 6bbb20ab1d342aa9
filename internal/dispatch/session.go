package dispatch

import (
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Lease is a live worker's row in the ledger.
type Lease struct {
	Worker  string
	Session string // "": the worker claims its tasks itself and gets no offers
	// Kinds are the kinds that the worker may have, each with its shards.
	Kinds map[ledger.Kind]ledger.ShardSet
	// Capacity is the maximum number of tasks that the worker may hold, whatever it asks for.
	Capacity int
}

// session is the dispatcher's side of a session.
type session struct {
	Lease

	hasReported bool  // in this epoch
	isLeaving   bool  // it takes no further tasks
	isSilent    bool  // no report has arrived for a while
	adopted     int64 // the holdings up to this number
	asked       map[ledger.Kind]int64
	given       map[ledger.Kind]int64
	unconfirmed map[ledger.Kind]int64 // by kind: the last number given, if the worker has not confirmed it
	sent        int64                 // the highest number
	received    int64
	echo        time.Duration
	checked     int64        // the highest number at the last call of Check
	idle        int          // how often its share of Capacity is halved
	numbers     []number     // of the tasks that are or were assigned to the session, rising
	holds       int          // the number of tasks that are assigned to it
	moved       []ledger.Key // assigned tasks to which others have appended, to be recalled
}

// number is the number under which a task was offered to a session or adopted from it.
type number struct {
	n    int64
	task *task
}

// newSession returns a session whose numbers follow sent.
func newSession(l Lease, sent int64) *session {
	return &session{Lease: l, adopted: notAdopted, checked: notAdopted, sent: sent, asked: map[ledger.Kind]int64{},
		given: map[ledger.Kind]int64{}, unconfirmed: map[ledger.Kind]int64{}}
}

// hasAnswered reports whether everything that the session holds is known.
func (s *session) hasAnswered() bool { return s.hasReported && s.adopted >= 0 }

// room returns how many tasks of a kind the session takes now.
func (s *session) room(kind ledger.Kind) int {
	if !s.hasAnswered() || s.isLeaving || s.isSilent {
		return 0
	}
	return max(0, min(int(s.asked[kind]-s.given[kind]), s.share()-s.holds))
}

// share returns how many tasks the session may hold.
func (s *session) share() int { return max(1, s.Capacity>>s.idle) }

// isFull reports whether the session holds its share.
func (s *session) isFull() bool { return s.holds >= s.share() }

// isNext reports whether n may be the number of the next task of an earlier epoch in a worker's list.
func (s *session) isNext(n int64) bool {
	return n <= 0 && (len(s.numbers) == 0 || n > s.numbers[len(s.numbers)-1].n)
}

// assign records that the session holds a task. Numbers rise from call to call.
func (s *session) assign(t *task, n int64) {
	t.place, t.session, t.number = assigned, s, n
	s.numbers = append(s.numbers, number{n, t})
	s.holds++
}

// dropped returns the assigned tasks whose numbers the worker has received and does not hold, and forgets the numbers
// of tasks that are no longer assigned. With all set, the report may be older than the offer of a task.
func (s *session) dropped(received int64, held []Range, all bool) (free []*task) {
	kept := s.numbers[:0]
	for _, x := range s.numbers {
		if x.task.place != assigned || x.task.session != s || x.task.number != x.n {
			continue
		}
		for len(held) > 0 && held[0].Last < x.n {
			held = held[1:]
		}
		isHeld := len(held) > 0 && held[0].First <= x.n
		if isHeld || x.n > received && !all {
			kept = append(kept, x)
		} else {
			free = append(free, x.task)
		}
	}
	clear(s.numbers[len(kept):])
	s.numbers = kept
	return free
}

// assigned returns the tasks with numbers up to n that are assigned to the session.
func (s *session) assigned(n int64) (all []*task) {
	for _, x := range s.numbers {
		if x.n > n {
			break
		}
		if t := x.task; t.place == assigned && t.session == s && t.number == x.n {
			all = append(all, t)
		}
	}
	return all
}

// unrecorded returns the assigned tasks with numbers up to n whose start is not recorded.
func (s *session) unrecorded(n int64) []*task {
	return slices.DeleteFunc(s.assigned(n), func(t *task) bool { return t.Actor == s.Worker })
}
