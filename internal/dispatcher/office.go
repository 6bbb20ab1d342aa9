package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/local"
	"github.com/taskledger/taskledger/internal/loglimit"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/only"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// sessionsEvery is how often the leases of workers are read. Reports of unknown sessions cause further reads. Any
	// client may send such reports, so these reads are at least joinsEvery apart.
	sessionsEvery = 500 * time.Millisecond
	joinsEvery    = 50 * time.Millisecond
	// probeEvery is how often workers that have not confirmed everything are asked. Until all have answered, they are
	// asked more often.
	probeEvery = time.Second
	urgeEvery  = 50 * time.Millisecond
	// beginEvery is the longest time between two windows until the dispatcher is active. It becomes active with a
	// window that is opened after the last answer.
	beginEvery = 10 * time.Millisecond
	// idleAfter is the time within which a worker must have recorded the start of a task, or the term of its lease if
	// that is longer. A healthy worker gives back a task that waits for a slot for 5 s, and records the start of a
	// task that it has begun within half of the term.
	idleAfter = 30 * time.Second
	// silentAfter is how long no report of a worker must have arrived before the worker counts as silent. It reports
	// every 500 ms.
	silentAfter = 5 * time.Second
	// maxAge is the greatest age of the last window for offers with contents.
	maxAge = time.Second
	// maxReady is the number of ready tasks of a kind in memory.
	maxReady = 65_536
	// maxUnsent is how many offers wait for NATS at most. Further ones are lost.
	maxUnsent = 10_000
	// maxContent is the size of args in an offer.
	maxContent = 512
)

// office is the work of a dispatcher in one epoch.
type office struct {
	config   Config
	found    *feed.Findings
	only     *only.Task
	conn     *pgxpool.Conn // of the goroutine that reads the feed
	identity dispatch.Identity
	claim    lease.DispatcherClaim
	term     lease.DispatcherTerm
	run      lease.Run
	barrier  time.Time // from then on no worker accepts an offer of the predecessor

	limited      *loglimit.Logger // for lines that repeat
	hasArchive   bool             // of follow: tasks may have been archived
	unsent       *local.Box[outgoing]
	wake         *feed.Wake
	turns        turns
	joins, reads request

	// Of readSessions, which does not run twice at once:
	sessions *lease.Sessions
	members  map[string]member // by worker

	mu       sync.Mutex // guards the fields below
	machine  *dispatch.Dispatcher
	peers    map[string]*peer // by session; only readSessions changes the map
	seen     string           // snapshot of the last window; "": its last page is not read yet
	viewed   time.Time        // when the last window was opened that is applied
	deadline time.Time        // of the lease
	isActive bool
	// hasLimits: there are limits of starts
	hasLimits bool
	clock     clock // the database's
	// permitsTook is how long the last read of permits and tokens took.
	permitsTook time.Duration
	opening     *time.Timer // matches when the gate of a rate opens
	opensAt     time.Time   // for which opening is set
}

// peer is a worker's session.
type peer struct {
	seal     *dispatch.Seal // nil if the worker's key is invalid
	checked  time.Time      // when the machine last checked the worker's work
	reported time.Time      // when its newest report arrived
	sent     time.Duration  // of that report; -1: none has arrived
}

func (p *peer) isSilent() bool { return time.Since(p.reported) > silentAfter }

// request wakes a goroutine.
type request chan struct{}

func newRequest() request { return make(request, 1) }

func (r request) ask() {
	select {
	case r <- struct{}{}:
	default:
	}
}

func newOffice(c Config, conn *pgxpool.Conn, identity dispatch.Identity, claim lease.DispatcherClaim,
	t lease.DispatcherTerm, run lease.Run, asked time.Time) *office {
	return &office{
		config: c, conn: conn, identity: identity, claim: claim, term: t, run: run, limited: loglimit.New(),
		hasArchive: t.HasArchive,
		unsent:     local.NewBox[outgoing](), wake: feed.NewWake(), joins: newRequest(), reads: newRequest(),
		machine: dispatch.New(t.Incarnation, t.Epoch, maxReady), peers: map[string]*peer{},
		sessions: new(lease.Sessions), members: map[string]member{},
		deadline: asked.Add(term), barrier: time.Now().Add(t.Before + dispatch.Freshness),
	}
}

// work gives out tasks until ctx is done or the lease is lost.
func (o *office) work(ctx context.Context) error {
	defer o.limited.Close()
	o.opening = time.AfterFunc(time.Hour, o.open)
	defer o.opening.Stop()
	reports, err := o.config.NATS.Subscribe(stream.PrefixOf(o.config.NATS).AllReports(), o.receive)
	if err != nil {
		return err
	}
	defer func() { _ = reports.Unsubscribe() }()
	box, remove := local.Dispatchers.Open(string(o.claim.Key))
	defer remove()
	if err := o.readSessions(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go o.unsent.Receive(ctx, o.publish) // NATS may block it for seconds, and nothing waits for it
	keeper := lines{db: o.config.DB, found: o.found, turns: &o.turns, wake: o.wake, log: o.config.Logger}
	return loop.Together(ctx, o.follow, o.listen, o.probe, o.tidyPermits, o.answer, keeper.run,
		func(ctx context.Context) error { box.Receive(ctx, o.receiveHere); return context.Cause(ctx) },
		func(ctx context.Context) error { return every(ctx, joinsEvery, sessionsEvery, o.joins, o.readSessions) },
		func(ctx context.Context) error { return every(ctx, 0, 0, o.reads, o.readTasks) },
	)
}

// every calls f when it is asked for, and at least at intervals of most unless that is 0, until ctx is done. It waits
// for least after each call.
func every(ctx context.Context, least, most time.Duration, asked request, f func(context.Context) error) error {
	var ticks <-chan time.Time
	if most > 0 {
		t := time.NewTicker(most)
		defer t.Stop()
		ticks = t.C
	}
	for {
		select {
		case <-ticks:
		case <-asked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := f(ctx); err != nil {
			return err
		}
		if err := loop.Sleep(ctx, least); err != nil {
			return err
		}
	}
}

// follow reads the feed and renews the lease until ctx is done or the lease is lost.
func (o *office) follow(ctx context.Context) error {
	tail, err := feed.Tail(ctx, o.conn, &feed.Options{
		// The lease is renewed between two windows.
		Gather: o.config.Latency, Idle: min(2*o.config.Latency, renewEvery), Wake: o.wake, Hinted: true,
		Reports: o.found, Logger: o.config.Logger,
	})
	if err != nil {
		return err
	}
	renewAt := time.Now().Add(renewEvery)
	var ticket int64
	var opened time.Time
	for isOpen, isReady := false, false; ; {
		if !time.Now().Before(renewAt) {
			if err := o.renew(ctx); err != nil {
				return err
			}
			renewAt = time.Now().Add(renewEvery)
		}
		if !isOpen {
			o.locked(func() {
				ticket, opened = o.machine.Open(), time.Now()
				isReady = o.isActive || len(o.machine.Unanswered()) == 0 || time.Now().After(o.barrier)
			})
		}
		var latest time.Time
		if !o.isActive { // only this goroutine changes it
			latest = time.Now().Add(beginEvery)
		}
		page, err := tail.LookBy(ctx, latest)
		if err != nil {
			return err
		}
		isOpen = page.Place().Until != (feed.Edge{})
		repeated, err := o.repeated(ctx, page.Events)
		if err != nil {
			return err
		}
		events := make([]dispatch.Event, 0, len(page.Events))
		for i := range page.Events {
			e, isOfTask := eventOf(&page.Events[i])
			if e.OrderKey != "" && e.Change == dispatch.Available {
				e.Content = o.turns.take(e.Position)
			}
			if isOfTask && o.only.Has(e.Key) && (page.Events[i].Version > 1 || !repeated[e.Key]) {
				events = append(events, e)
			}
		}
		seen := page.Place().Seen
		page.Release()
		o.locked(func() {
			if isOpen {
				o.seen = ""
				o.machine.Apply(0, events)
			} else {
				o.seen, o.viewed = seen.Snapshot, opened
				o.machine.Apply(ticket, events)
				if isReady && !o.isActive {
					o.isActive = true
					o.machine.Activate(seen.Top)
				}
			}
			o.match()
		})
	}
}

// locked calls f while o.mu is held. A panic of f releases it: the other goroutines must be able to end.
func (o *office) locked(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// renew renews the lease. It waits for the answer even if ctx ends: a statement that the server executes later would
// take back a yielded lease.
func (o *office) renew(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), o.deadline)
	defer cancel()
	asked := time.Now()
	t, ok, err := lease.TakeDispatcher(ctx, o.conn, o.claim)
	switch {
	case err != nil:
		return err
	case !ok || t.Epoch != o.term.Epoch:
		return errLeaseLost
	case t.Incarnation != o.term.Incarnation:
		return errRestarted
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline, o.hasArchive = asked.Add(term), t.HasArchive
	return nil
}

// readSessions reads the live workers. It returns [errCutOff] if no worker reports and NATS cannot be reached.
func (o *office) readSessions(ctx context.Context) error {
	all, conditions, err := o.sessions.Read(ctx, o.config.DB)
	if err != nil {
		return err
	}
	if o.joinAll(all, conditions) {
		return nil
	}
	if err := o.config.NATS.FlushTimeout(time.Second); err != nil {
		return fmt.Errorf("%w: %w", errCutOff, err)
	}
	return nil
}

// member is a worker as it has joined.
type member struct{ digest, session string }

// joinAll joins the sessions of all live workers. It reports false if all of them are silent.
func (o *office) joinAll(all []lease.Session, c lease.Conditions) (hasReports bool) {
	peers := o.newPeers(all)
	o.locked(func() { maps.Copy(o.peers, peers) })
	alive := make(map[string]bool, len(all))
	sessions := make(map[string]bool, len(all))
	for _, s := range all {
		alive[s.Worker] = true
		o.locked(func() { o.join(s) }) // not for all: a lease may have many kinds
		sessions[o.members[s.Worker].session] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, worker := range o.machine.Workers() {
		if !alive[worker] {
			o.machine.Leave(worker)
		}
	}
	maps.DeleteFunc(o.members, func(worker string, _ member) bool { return !alive[worker] })
	maps.DeleteFunc(o.peers, func(session string, _ *peer) bool { return !sessions[session] })
	hasReports = true
	for _, p := range o.peers {
		if hasReports = !p.isSilent(); hasReports {
			break
		}
	}
	o.machine.Pause(c.Paused)
	o.machine.Limit(limitsOf(c.Limits))
	o.machine.SetWeights(c.Weights)
	o.machine.Retry()
	o.hasLimits = len(c.Limits) > 0
	o.match()
	return hasReports
}

// newPeers returns the peers of sessions that have none. It notes the sessions of the workers whose leases have
// changed. A seal takes 0.1 ms, and a worker may change its keys at any time: o.mu is not held meanwhile.
func (o *office) newPeers(all []lease.Session) map[string]*peer {
	peers := map[string]*peer{}
	for _, s := range all {
		if m, isKnown := o.members[s.Worker]; len(s.Key) == 0 || isKnown && m.digest == s.Digest {
			continue
		}
		session := dispatch.SessionName(s.Worker, s.Key)
		if o.peers[session] != nil {
			continue
		}
		seal, err := dispatch.NewSeal(dispatch.DispatcherSide, o.identity, s.Key, dispatch.Conversation{
			Session: session, Incarnation: o.term.Incarnation, Epoch: o.term.Epoch,
		})
		if err != nil {
			o.limited.Warn(o.config.Logger, "worker with an invalid key gets no tasks", "id", s.Worker, "error", err)
		}
		peers[session] = &peer{seal: seal, checked: time.Now(), reported: time.Now(), sent: -1}
	}
	return peers
}

// join joins a session if its lease has changed, and checks from time to time that it does something. o.mu is held.
func (o *office) join(s lease.Session) {
	m, isKnown := o.members[s.Worker]
	if !isKnown || m.digest != s.Digest {
		m = o.joinChanged(s)
		o.members[s.Worker] = m
	}
	p := o.peers[m.session]
	if p == nil || p.seal == nil {
		return
	}
	if time.Since(p.checked) >= max(s.Term, idleAfter) {
		p.checked = time.Now()
		o.machine.Check(s.Worker)
	}
	if p.isSilent() {
		o.machine.Silence(s.Worker)
	}
}

// joinChanged joins a session. o.mu is held.
func (o *office) joinChanged(s lease.Session) member {
	l := dispatch.Lease{Worker: s.Worker, Capacity: s.Capacity,
		Kinds: make(map[ledger.Kind]ledger.ShardSet, len(s.Kinds))}
	if len(s.Key) > 0 {
		l.Session = dispatch.SessionName(s.Worker, s.Key)
		if o.peers[l.Session].seal == nil {
			o.machine.Leave(s.Worker) // the session of an earlier key
			return member{s.Digest, l.Session}
		}
	}
	for _, k := range s.Kinds {
		l.Kinds[ledger.Kind(k)] = s.Shards
	}
	o.machine.Join(l)
	return member{s.Digest, l.Session}
}

// receive takes a report of a worker.
func (o *office) receive(m *nats.Msg) {
	session := stream.PrefixOf(o.config.NATS).SessionOf(m.Subject)
	p := o.peerOf(session)
	if p == nil {
		o.joins.ask() // a worker that began a moment ago
		return
	}
	if p.seal == nil {
		return
	}
	text, err := p.seal.Open(m.Data) // without o.mu: any client can send large messages
	if err != nil {
		return // of another epoch, which a probe ends, or forged
	}
	var r dispatch.Report
	if err := r.UnmarshalBinary(text); err != nil {
		o.limited.Warn(o.config.Logger, "report of a worker refused", "error", err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Session == session && o.peers[session] == p {
		o.take(p, r)
	}
}

func (o *office) peerOf(session string) *peer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.peers[session]
}

// receiveHere takes a report of a worker of this process.
func (o *office) receiveHere(r dispatch.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.peers[r.Session]
	if p == nil {
		o.joins.ask()
		return
	}
	o.take(p, r)
}

// take takes a report that was sent after all that have arrived. Earlier reports and copies add nothing. They do not
// show that the worker lives, because any client can send a copy. o.mu is held.
func (o *office) take(p *peer, r dispatch.Report) {
	if r.Sent <= p.sent {
		return
	}
	p.sent, p.reported = r.Sent, time.Now()
	o.machine.Receive(r)
	o.match()
}

// match offers tasks, and requests the reads that the state machine wants. o.mu is held.
func (o *office) match() {
	if o.hasLimits {
		o.machine.Tick(o.databaseTime())
	}
	o.machine.Match()
	for _, offer := range o.machine.Offers() {
		o.send(offer)
	}
	if o.machine.WantsReads() {
		o.reads.ask()
	}
	if at := o.machine.OpensAt(); !at.IsZero() && !at.Equal(o.opensAt) {
		o.opensAt = at
		o.opening.Reset(at.Sub(o.databaseTime()) + openMargin)
	}
}

// send sends an offer, unless the lease has ended. If windows are late, tasks may have ended since the last window, so
// the worker reads their heads. It never waits for NATS: workers of this process do without. o.mu is held.
func (o *office) send(offer dispatch.Offer) {
	if time.Since(o.viewed) > maxAge {
		for i := range offer.Tasks {
			offer.Tasks[i].Content = nil
		}
	}
	p := o.peers[offer.Session]
	if p == nil || !time.Now().Before(o.deadline) || local.Workers.Put(offer.Session, offer) {
		return
	}
	o.unsent.PutBelow(maxUnsent, outgoing{offer, p.seal, o.deadline})
}

// outgoing is an offer to a worker of another process.
type outgoing struct {
	offer    dispatch.Offer
	seal     *dispatch.Seal
	deadline time.Time // of the lease
}

// publish publishes an offer, unless it has waited until the lease may have ended. If it is lost, a probe repeats its
// number.
func (o *office) publish(m outgoing) {
	if !time.Now().Before(m.deadline) {
		return
	}
	text, err := m.offer.MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("an offer cannot be encoded: %v", err))
	}
	_ = o.config.NATS.Publish(stream.PrefixOf(o.config.NATS).OfferSubject(m.offer.Session), m.seal.Seal(text))
}

// probe asks workers to confirm the offers that they have received, until ctx is done.
func (o *office) probe(ctx context.Context) error {
	for {
		pause := urgeEvery
		o.locked(func() {
			if o.isActive {
				pause = probeEvery
			}
		})
		if err := loop.Sleep(ctx, pause); err != nil {
			return err
		}
		o.locked(func() {
			o.machine.Probe()
			o.match()
		})
	}
}
