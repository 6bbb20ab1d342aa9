package workers

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/local"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
	"github.com/taskledger/taskledger/workers/internal/inflight"
)

const (
	// reportEvery is the longest time between two reports to the dispatcher.
	reportEvery = 500 * time.Millisecond
	// lookAgainAfter is the least time between two reads of the dispatcher's key.
	lookAgainAfter = 50 * time.Millisecond
)

// asker asks the dispatcher for tasks. It drives the state machine of package dispatch.
type asker struct {
	// Constant after newAsker.
	pool     *Pool
	session  string
	identity dispatch.Identity
	begun    time.Time
	isRemote bool // it uses NATS even for a dispatcher of this process; tests set it before run

	due     chan struct{} // holds a token if a report may be due
	unknown chan *nats.Msg
	moved   chan []ledger.Key // tasks to which others have appended

	mu          sync.Mutex // guards the fields below
	machine     *dispatch.Worker
	incarnation string
	epoch       int64 // of seal
	seal        *dispatch.Seal
	dispatcher  string    // its public key
	seen        time.Time // when the last successful view of the primary was requested
	clock       time.Time // of the database in that view
	renewed     time.Time // when the last successful renewal of the lease began
	isUrgent    bool      // a report is due
}

func newAsker(p *Pool) (*asker, error) {
	identity, err := dispatch.NewIdentity()
	if err != nil {
		return nil, err
	}
	session := dispatch.SessionName(p.id, identity.Public())
	return &asker{
		pool: p, session: session, identity: identity, begun: time.Now(), due: make(chan struct{}, 1),
		unknown: make(chan *nats.Msg, 1), moved: make(chan []ledger.Key, 16), machine: dispatch.NewWorker(session, ""),
	}, nil
}

// describe adds the session's key to the worker's lease.
func (a *asker) describe(d *leaseDetail) {
	d.Key = hex.EncodeToString(a.identity.Public())
	for _, k := range a.pool.registered() {
		_, limit := k.Tasks.Wanted()
		if a.pool.isGateway { // its slots change with each request
			limit = maxSlots
		}
		held, _ := k.Tasks.Size() // more than limit after the slots were lowered
		d.Capacity += max(limit, held) + maxAsked
	}
	d.Capacity = min(d.Capacity, 999_999)
}

// maxAsked bounds how many tasks of a kind may wait for a slot.
const maxAsked = 1000

// run asks for tasks until stopping is done, and reports the tasks that the worker holds until quit is done. It
// returns an error only if the connection to NATS is closed for good.
func (a *asker) run(stopping, quit context.Context) error {
	offers, err := a.pool.config.NATS.Subscribe(stream.PrefixOf(a.pool.config.NATS).OfferSubject(a.session), a.receive)
	if err != nil {
		return err
	}
	defer func() { _ = offers.Unsubscribe() }()
	box, remove := local.Workers.Open(a.boxName())
	defer remove()
	var helpers sync.WaitGroup
	defer helpers.Wait()
	helpers.Go(func() { a.find(quit) })
	helpers.Go(func() { a.recall(quit) })
	helpers.Go(func() { box.Receive(quit, a.takeHere) })
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	isStopping := stopping.Done()
	for {
		select {
		case <-a.due:
			a.report(false)
		case <-tick.C:
			if nc := a.pool.config.NATS; nc.IsClosed() {
				return stream.WithRefusal(nc, nats.ErrConnectionClosed)
			}
			if err := a.refusal(); err != nil {
				a.pool.runner.Warn(a.pool.config.Logger, "cannot ask for tasks", "error", err)
			}
			a.report(true)
		case <-isStopping:
			isStopping = nil
			a.mu.Lock()
			a.machine.Leave()
			a.mu.Unlock()
			a.report(true)
		case <-quit.Done():
			a.report(true) // that nothing is in flight any more
			return nil
		}
	}
}

// refusal returns why NATS does not carry the worker's messages; nil if it does or if the reason is unknown.
func (a *asker) refusal() error {
	nc := a.pool.config.NATS
	if !nc.IsConnected() {
		return stream.WithRefusal(nc, nats.ErrDisconnected)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.machine.Follows() {
		return nil
	}
	err := stream.WithRefusal(nc, nats.ErrTimeout)
	if !errors.Is(err, nats.ErrPermissionViolation) && !errors.Is(err, nats.ErrAuthorization) {
		return nil // no dispatcher may be active
	}
	return err
}

// boxName returns the name under which a dispatcher of this process finds the worker.
func (a *asker) boxName() string {
	if a.isRemote {
		return ""
	}
	return a.session
}

// find reads the dispatcher's key from the database when a message cannot be opened, until quit is done.
func (a *asker) find(quit context.Context) {
	for {
		select {
		case m := <-a.unknown:
			a.pool.look(quit)
			if m != nil {
				a.open(m, false)
			}
		case <-quit.Done():
			return
		}
		select {
		case <-time.After(lookAgainAfter):
		case <-quit.Done():
			return
		}
	}
}

// recall rereads the heads of tasks to which others have appended, until quit is done.
func (a *asker) recall(quit context.Context) {
	for {
		select {
		case keys := <-a.moved:
			a.pool.recall(keys)
		case <-quit.Done():
			return
		}
	}
}

// learn applies a view of the database: which dispatcher is active, and that the primary can be reached.
func (a *asker) learn(v view) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v.incarnation == "" {
		return nil
	}
	a.machine.Reach(v.incarnation)
	a.seen, a.clock = v.asked, v.clock
	if v.epoch == 0 || a.seal != nil && a.epoch == v.epoch && a.incarnation == v.incarnation {
		return nil
	}
	seal, err := dispatch.NewSeal(dispatch.WorkerSide, a.identity, v.key, dispatch.Conversation{
		Session: a.session, Incarnation: v.incarnation, Epoch: v.epoch,
	})
	if err != nil {
		return fmt.Errorf("key of the dispatcher: %w", err)
	}
	a.seal, a.epoch, a.incarnation, a.dispatcher, a.isUrgent = seal, v.epoch, v.incarnation, string(v.key), true
	a.wake()
	return nil
}

// wake makes run send a report if one is due.
func (a *asker) wake() {
	select {
	case a.due <- struct{}{}:
	default:
	}
}

// receive takes a message of the dispatcher.
func (a *asker) receive(m *nats.Msg) { a.open(m, true) }

func (a *asker) open(m *nats.Msg, mayLook bool) {
	a.mu.Lock()
	seal := a.seal
	var text []byte
	err := dispatch.ErrSeal
	if seal != nil {
		text, err = seal.Open(m.Data)
	}
	if err != nil {
		a.mu.Unlock()
		if mayLook {
			a.lookFor(m)
		}
		return
	}
	a.mu.Unlock()
	var offer dispatch.Offer
	if err := offer.UnmarshalBinary(text); err != nil {
		a.pool.runner.Warn(a.pool.config.Logger, "offer refused", "error", err)
		return
	}
	a.take(offer)
}

// lookFor requests a read of the active dispatcher. If m is not nil, it is opened afterwards.
func (a *asker) lookFor(m *nats.Msg) {
	select {
	case a.unknown <- m:
	default: // a probe follows
	}
}

// takeHere takes an offer of a dispatcher in this process, if that dispatcher is active.
func (a *asker) takeHere(offer dispatch.Offer) {
	a.mu.Lock()
	isKnown := a.seal != nil && a.epoch == offer.Epoch && a.incarnation == offer.Incarnation
	a.mu.Unlock()
	if !isKnown {
		a.lookFor(nil)
		return
	}
	a.take(offer)
}

// take takes an offer.
func (a *asker) take(offer dispatch.Offer) {
	a.mu.Lock()
	taken, isNews := a.machine.Receive(offer)
	a.isUrgent = a.isUrgent || isNews
	of := source{read: attempt.Read{Incarnation: offer.Incarnation}, now: time.Now()}
	if echo := a.machine.Echo(); echo > 0 {
		of.seen = a.begun.Add(echo)
	}
	if !a.seen.IsZero() {
		of.clock = a.clock.Add(of.now.Sub(a.seen))
	}
	a.mu.Unlock()
	if isNews {
		a.wake()
	}
	if len(offer.Moved) > 0 {
		select {
		case a.moved <- offer.Moved:
		default: // the next renewal of the lease finds them
		}
	}
	if len(taken) > 0 {
		a.begin(taken, of)
	}
}

// source is where offered tasks come from.
type source struct {
	read  attempt.Read // in the incarnation of the database
	seen  time.Time    // the dispatcher's view of its tasks is not older; zero: unknown
	now   time.Time    // when they arrived
	clock time.Time    // of the database then; zero: unknown
}

// hasReached reports whether the worker may begin tasks. It has recently reached the primary, at the given time or in
// a view, so it can record outcomes. Its lease is alive, so no other worker takes over its tasks.
func (a *asker) hasReached(at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen.After(at) {
		at = a.seen
	}
	return time.Since(at) <= dispatch.Freshness && time.Since(a.renewed) < a.pool.config.LeaseTTL
}

// noteRenewal records when the last successful renewal of the worker's lease began.
func (a *asker) noteRenewal(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renewed = at
}

// begin passes on offered tasks of one kind. Tasks with content wait for a slot, the others until their heads are
// read.
func (a *asker) begin(offered []dispatch.Task, of source) {
	a.pool.mu.Lock()
	k := a.pool.byName[offered[0].Key.Kind]
	a.pool.mu.Unlock()
	undecided := make([]*attempt.Task, 0, len(offered))
	var ready []*run
	for i := range offered {
		var t *attempt.Task
		if k != nil && a.pool.config.Shards.Has(offered[i].Shard) {
			m, err := messageOf(&offered[i])
			if err == nil {
				t = k.Tasks.Add(m, offered[i].IsAgain, offered[i].Content == nil)
			} else {
				k.Warn(k.Logger, "offer refused", "biz_id", string(offered[i].Key.BizID), "error", err)
			}
		}
		switch {
		case t == nil:
			a.end(offered[i].Key, true)
		case offered[i].Content == nil || of.seen.IsZero() || of.clock.IsZero():
			undecided = append(undecided, t)
		default:
			h := of.head(&t.Message)
			h.Priority, h.Read = offered[i].Priority, h.Read.In(offered[i].Partition, offered[i].OrderKey)
			if r := k.carryOut(k.verdict(t, h), t, h, of.now); r != nil {
				r.seen = of.seen
				ready = append(ready, r)
			}
		}
	}
	if k != nil {
		k.decide(undecided...)
		k.ready(of.now, ready)
	}
}

// head returns the head of a task offered with content: the offered event. The append of an outcome finds any later
// event. Of released tasks, only those whose turn it is are offered with content.
func (s *source) head(m *stream.Message) attempt.Head {
	return attempt.Head{
		IsFound: true, Version: m.Version, Type: m.Type, Attempt: m.Attempt, Shard: m.Shard,
		RecordedAt: m.RecordedAt, Clock: s.clock, Read: &s.read, IsOrdered: m.Type == ledger.EventReleased,
	}
}

// messageOf returns an offered task as attempts need it. Without content, its event and args are read with its head.
func messageOf(t *dispatch.Task) (stream.Message, error) {
	m := stream.Message{
		Key: t.Key, Version: t.Version, Attempt: t.Attempt, Position: t.Position, Shard: t.Shard,
		Type: ledger.EventReleased,
	}
	if t.Content == nil {
		return m, nil
	}
	var c dispatch.Content
	if err := c.UnmarshalBinary(t.Content); err != nil {
		return m, fmt.Errorf("content: %w", err)
	}
	m.Type, m.RecordedAt, m.FinishBy, m.Payload = c.Type, c.RecordedAt, c.FinishBy, c.Args
	m.Traceparent, m.Tracestate, m.Envelope = c.Traceparent, c.Tracestate, c.Envelope
	return m, nil
}

// inflight adds the asker's callbacks to the configuration of a kind's tasks in flight. A caller has no asker. Ends of
// tasks of a limited kind are reported at once: others may wait for their permits.
func (a *asker) inflight(kind ledger.Kind, isLimited func() bool, c inflight.Config) inflight.Config {
	if a != nil {
		c.Ended = func(k ledger.Key, isGivenBack bool) { a.end(k, isGivenBack || isLimited()) }
		c.HasRoom = func(n, limit int) { a.wakeIfDue(kind, n, limit) }
	}
	return c
}

// end records that the worker no longer holds a task. isUrgent: the dispatcher needs a report at once, because the task
// was given back or has held a permit.
func (a *asker) end(k ledger.Key, isUrgent bool) {
	a.mu.Lock()
	a.machine.End(k)
	a.isUrgent = a.isUrgent || isUrgent
	a.mu.Unlock()
	if isUrgent {
		a.wake()
	}
}

// wakeIfDue wakes the goroutine that reports only if the room for tasks of a kind makes a report due: most tasks of a
// steady flow begin and end between two reports.
func (a *asker) wakeIfDue(kind ledger.Kind, n, limit int) {
	a.mu.Lock()
	isDue := a.isDue(kind, n, limit)
	a.mu.Unlock()
	if isDue {
		a.wake()
	}
}

// isDue reports whether n further tasks of a kind are many more than the asker has requested. a.mu is held.
func (a *asker) isDue(kind ledger.Kind, n, limit int) bool {
	more := n - a.machine.Outstanding(kind)
	return more > 0 && (more == n || more >= limit/4)
}

// report sends a report if one is due, or always if isAlways is set. NATS may block it, so it holds no lock then.
func (a *asker) report(isAlways bool) {
	if sealed := a.nextReport(isAlways); sealed != nil {
		// If it is lost, the next one replaces it.
		_ = a.pool.config.NATS.Publish(stream.PrefixOf(a.pool.config.NATS).ReportSubject(a.session), sealed)
	}
}

// nextReport returns the sealed report to be sent now. It returns nil if none is due, or if the dispatcher of this
// process has taken it.
func (a *asker) nextReport(isAlways bool) []byte {
	kinds := a.pool.registered()
	wants := make([]want, len(kinds))
	for i, k := range kinds {
		wants[i].n, wants[i].limit = k.Tasks.Wanted()
		switch {
		case k.isPaused.Load():
			wants[i].n = 0
		case k.isLate.Load() || k.IsLimited(): // a task that waits here may take the place of one that could run
			wants[i].n = min(wants[i].n, k.pool.slots.Free(k.line))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seal == nil {
		return nil
	}
	isDue := isAlways || a.isUrgent
	for i, k := range kinds {
		isDue = isDue || a.isDue(k.Name, wants[i].n, wants[i].limit)
		a.machine.Want(k.Name, wants[i].n)
	}
	if !isDue {
		return nil
	}
	a.isUrgent = false
	report := a.machine.Report(time.Since(a.begun))
	if !a.isRemote && local.Dispatchers.Put(a.dispatcher, report) {
		return nil
	}
	text, err := report.MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("a report cannot be encoded: %v", err))
	}
	return a.seal.Seal(text)
}

// want is how many further tasks of a kind are wanted, and how many may be in flight.
type want struct{ n, limit int }
