package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Worker is the worker's side of the conversation, in one session.
type Worker struct {
	session     string
	incarnation string
	mutant      mutant

	isLeaving bool

	epoch    int64
	received int64
	adopted  int64 // the dispatcher has adopted the holdings up to this number
	echo     time.Duration
	wanted   map[ledger.Kind]int64
	asked    map[ledger.Kind]int64
	got      map[ledger.Kind]int64
	held     map[ledger.Key]*Holding
}

// NewWorker returns a worker that holds nothing and follows no dispatcher yet.
func NewWorker(session, incarnation string) *Worker {
	return &Worker{session: session, incarnation: incarnation, wanted: map[ledger.Kind]int64{},
		asked: map[ledger.Kind]int64{}, got: map[ledger.Kind]int64{}, held: map[ledger.Key]*Holding{}}
}

// Reach records the database's incarnation, as a statement of the worker returned it. A new incarnation counts epochs
// from the beginning.
func (w *Worker) Reach(incarnation string) {
	if incarnation != w.incarnation {
		w.incarnation = incarnation
		w.enter(0)
	}
}

// Want sets the number of further tasks of a kind that the worker has room for. The next report asks for them; this
// replaces earlier requests whose tasks have not arrived.
func (w *Worker) Want(kind ledger.Kind, n int) { w.wanted[kind] = int64(n) }

// Leave ends the requests for tasks for good. Offers on their way still arrive.
func (w *Worker) Leave() { w.isLeaving = true }

// Outstanding returns how many requested tasks of a kind have not arrived.
func (w *Worker) Outstanding(kind ledger.Kind) int { return int(max(0, w.asked[kind]-w.got[kind])) }

// Receive takes an offer and returns the tasks that the worker now holds because of it. isNews reports that the
// dispatcher needs a report at once: the offer begins a new epoch, or an earlier offer was lost.
func (w *Worker) Receive(o Offer) (taken []Task, isNews bool) {
	if o.Session != w.session || o.Incarnation != w.incarnation {
		return nil, false
	}
	switch {
	case o.Epoch > w.epoch || o.Epoch < w.epoch && w.mutant == epochsFall:
		w.enter(o.Epoch)
		isNews = true
	case o.Epoch < w.epoch:
		return nil, false
	}
	w.adopted = max(w.adopted, o.Adopted)
	w.echo = max(w.echo, o.Echo)
	if w.mutant != creditIsCounted {
		for kind, n := range o.Given {
			w.got[kind] = max(w.got[kind], n)
		}
	}
	if len(o.Tasks) == 0 {
		isNews = isNews || o.Number > w.received
		w.received = max(w.received, o.Number)
		return nil, isNews
	}
	if o.Number <= w.received && w.mutant != lateIsAccepted {
		return nil, isNews
	}
	isNews = isNews || o.Number > w.received+1
	for i, t := range o.Tasks {
		w.received = max(w.received, o.Number+int64(i))
		if h := w.held[t.Key]; h != nil { // the dispatcher did not know it
			h.Number = o.Number + int64(i)
			continue
		}
		if w.mutant == creditIsCounted {
			w.got[t.Key.Kind]++
		}
		w.held[t.Key] = &Holding{Key: t.Key, Version: t.Version, Number: o.Number + int64(i)}
		taken = append(taken, t)
	}
	return taken, isNews
}

// Follows reports whether a dispatcher has reached the worker.
func (w *Worker) Follows() bool { return w.epoch > 0 }

// End records that the worker no longer holds a task: its outcome is committed or was refused, or the task is given
// back. If the task has not begun, another worker may begin it.
func (w *Worker) End(k ledger.Key) { delete(w.held, k) }

// Echo returns the time, by the worker's clock, of the newest report that the dispatcher is known to have received.
// The dispatcher's view is not older.
func (w *Worker) Echo() time.Duration { return w.echo }

// enter follows another dispatcher. Numbers and sums start from zero, and the tasks that are held get new numbers.
func (w *Worker) enter(epoch int64) {
	w.epoch, w.received, w.echo = epoch, 0, 0
	clear(w.asked)
	clear(w.got)
	w.adopted = -int64(len(w.held))
	number := w.adopted
	for _, h := range w.holdings() {
		number++
		h.Number = number
	}
}

// holdings returns the tasks that the worker holds, by number.
func (w *Worker) holdings() []*Holding {
	return slices.SortedFunc(maps.Values(w.held), func(a, b *Holding) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), a.Key.Compare(b.Key))
	})
}

// Report returns the report to be sent now, by the worker's monotonic clock.
func (w *Worker) Report(now time.Duration) Report {
	for kind, n := range w.wanted {
		w.asked[kind] = w.got[kind] + n
	}
	r := Report{Session: w.session, Incarnation: w.incarnation, Epoch: w.epoch, Sent: now, Asked: maps.Clone(w.asked),
		Received: w.received, IsLeaving: w.isLeaving, After: w.adopted}
	r.Through = min(0, r.After+maxListed)
	for _, h := range w.holdings() {
		if n := len(r.Held); n > 0 && r.Held[n-1].Last == h.Number-1 {
			r.Held[n-1].Last = h.Number
		} else {
			r.Held = append(r.Held, Range{h.Number, h.Number})
		}
		if h.Number > r.After && h.Number <= r.Through {
			r.Listed = append(r.Listed, *h)
		}
	}
	return r
}
