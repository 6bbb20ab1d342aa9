package feed

import (
	"context"
	_ "embed"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

// Wake ends the sleep of a feed. While a connection listens for it on the channel [WakeChannel] of the database, a
// feed without events polls at growing intervals, up to a quarter of a second. Statements that enqueue tasks meanwhile
// notify the connection. After [AwaitOutcomes], statements that append events do so too. A Wake is for one feed. It is
// safe for concurrent use.
type Wake struct {
	signal      chan struct{}
	hint        chan struct{}
	isListening atomic.Bool
}

// WakeChannel is the channel of NOTIFY on which a sleeping feed is notified. The payload is the position of an event
// that enqueued a task, or empty.
const WakeChannel = "taskledger"

// NewWake returns a Wake for which no connection listens yet.
func NewWake() *Wake {
	return &Wake{signal: make(chan struct{}, 1), hint: make(chan struct{}, 1)}
}

// SetListening sets whether a connection listens. The feed polls at once, and then at the resulting intervals.
func (w *Wake) SetListening(isListening bool) {
	w.isListening.Store(isListening)
	w.Signal()
}

// Signal reports a notification.
func (w *Wake) Signal() { put(w.signal) }

// Hint reports a notification to a feed with [Options.Hinted] whose reader takes the event by itself. If other feeds
// follow, their next window is due in 50 ms.
func (w *Wake) Hint() { put(w.hint) }

func put(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

func drop(token chan struct{}) {
	select {
	case <-token:
	default:
	}
}

var (
	//go:embed sql/may_listen.sql
	mayListenSQL string
	//go:embed sql/listen.sql
	listenSQL string
	//go:embed sql/await_outcomes.sql
	awaitOutcomesSQL string
)

// Listen listens on [WakeChannel] with a connection. It reports false, and does nothing, behind a pooler, where
// notifications do not arrive, and on a server with prepared transactions, which cannot notify.
func Listen(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var mayListen bool
	_, err := pgquery.Row(ctx, conn, mayListenSQL, []any{int64(conn.PgConn().PID())}, &mayListen)
	if err == nil && mayListen {
		_, err = conn.Exec(ctx, listenSQL)
	}
	return mayListen, pgerr.Explain("listen for events", err)
}

// AwaitOutcomes makes appends of events notify a sleeping feed, as enqueues do, for the next d, at most a minute. db
// is the primary.
func AwaitOutcomes(ctx context.Context, db ledger.DB, d time.Duration) error {
	_, err := db.Exec(ctx, awaitOutcomesSQL, d.Microseconds())
	return pgerr.Explain("await outcomes", err)
}

const (
	// A feed without a Wake polls at least this often, unless its Gather or Idle is long.
	maxIdle = 10 * time.Millisecond
	// A feed with a Wake sleeps for a time between these bounds. A transaction that inserted before the feed asked for
	// notifications, and commits afterwards, does not notify. Its events wait for a part of the time that they had
	// waited for their commit.
	minAsleep = 4 * time.Millisecond
	maxAsleep = 250 * time.Millisecond
	// Outcomes notify only while a process waits for one. After a page, further events wait at most this long.
	followUp = 20 * time.Millisecond
	// idleShare: the sleep is one part in idleShare of the time without events.
	idleShare = 4
	// notifiedFor is how long notifications are asked for: longer than the feed sleeps, because it may be late.
	notifiedFor = maxAsleep + time.Second
	// A feed that recently read this number of events polls every busyPoll instead, unless a process waits for
	// outcomes. Notifications of producers, and windows of one event each, would cost more than the polls.
	busyEvents = 20
	busyPoll   = 5 * time.Millisecond
	// A feed whose reader takes hints need not be quick: its windows are hintedPoll apart. It is busy only from
	// hintedEvents on, because hints cause no windows of their own.
	hintedEvents = 100
	hintedPoll   = 50 * time.Millisecond
	// lately is the time constant of the number of events: an event counts 1/e after it.
	lately = 100 * time.Millisecond
)

// rest is the sleep of a feed between two windows.
type rest struct {
	wake   *Wake // or nil
	least  time.Duration
	most   time.Duration // without a Wake
	since  time.Time     // of the last events
	asked  time.Time     // since when each window has asked for notifications; zero if the last window did not
	isIdle bool          // the last window was empty

	follows *Findings // of another feed, or nil
	polled  time.Time // when the last window was begun; zero if the feed has moved since

	isHinted bool // see Options.Hinted
	reports  *Findings

	recent    float64   // events lately
	counted   time.Time // when recent was computed
	isAwaited bool      // a process waited for outcomes when the last window was read
	isPrompt  bool      // see Options
}

// note counts the events of a window.
func (r *rest) note(events int, isAwaited bool, now time.Time) {
	r.recent = r.lately(now) + float64(events)
	r.counted, r.isAwaited = now, isAwaited
}

// lately returns the number of recent events.
func (r *rest) lately(now time.Time) float64 {
	return r.recent * math.Exp(-float64(now.Sub(r.counted))/float64(lately))
}

// isHurried reports whether a process waits for an outcome that the feed's reader publishes.
func (r *rest) isHurried() bool { return r.isPrompt && (r.isAwaited || r.follows.isAwaited()) }

// leastNow returns the least time between two windows.
func (r *rest) leastNow() time.Duration {
	if r.isHurried() {
		return min(r.least, minGather)
	}
	return r.least
}

// isBusy reports whether the feed polls without notifications.
func (r *rest) isBusy(now time.Time) bool {
	if r.isHinted {
		return r.lately(now) >= hintedEvents
	}
	return !r.isAwaited && r.lately(now) >= busyEvents
}

// ask returns for how long the next window asks for notifications. A negative duration ends an earlier window's
// request.
func (r *rest) ask(now time.Time) time.Duration {
	switch {
	case r.wake == nil:
		return 0
	case !r.wake.isListening.Load() || r.isBusy(now):
		r.asked = time.Time{}
		return -notifiedFor
	}
	if r.asked.IsZero() {
		r.asked = now
	}
	return notifiedFor
}

// length returns how long to sleep before the next window, if no notification ends the sleep.
func (r *rest) length(now time.Time) time.Duration {
	idle := now.Sub(r.since) / idleShare
	switch {
	case !r.asked.IsZero() && r.isHinted:
		return min(max(idle, hintedPoll), maxAsleep)
	case !r.asked.IsZero():
		known := now.Sub(r.asked) / idleShare
		return min(max(min(max(idle, followUp), known), r.leastNow(), minAsleep), maxAsleep)
	case r.wake != nil && r.isBusy(now):
		return max(r.leastNow(), busyPoll)
	case r.isIdle:
		return min(max(idle, r.leastNow()), r.most)
	}
	return 0
}

// sleep waits until the next window is due, at the earliest after gather, or until ctx is done. Reports of another
// feed do not delay it beyond latest, unless that is zero.
func (r *rest) sleep(ctx context.Context, gather time.Duration, latest time.Time) error {
	if r.follows != nil && r.polled.IsZero() {
		if err := r.follows.awaitFirst(ctx, min(r.most, followFor)); err != nil {
			return err
		}
	}
	d := loop.Align(r.length(time.Now()))
	if r.follows != nil && r.isIdle && !r.polled.IsZero() {
		if isFound, err := r.follows.await(ctx, r.polled, max(d, gather), latest); err != nil || !isFound {
			return err
		}
		return loop.Sleep(ctx, r.leastNow()) // for the events that follow
	}
	if r.wake == nil {
		return loop.Sleep(ctx, max(d, gather))
	}
	begin := time.Now()
	if err := r.awaitWake(ctx, begin.Add(d)); err != nil {
		return err
	}
	if err := loop.Sleep(ctx, gather-time.Since(begin)); err != nil {
		return err
	}
	drop(r.wake.signal) // the window sees its events
	drop(r.wake.hint)
	return nil
}

// awaitWake waits until due, for a signal, or for hintedPoll after the first hint.
func (r *rest) awaitWake(ctx context.Context, due time.Time) error {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	hint := r.wake.hint
	for {
		select {
		case <-timer.C:
			return nil
		case <-r.wake.signal:
			return nil
		case <-hint:
			hint = nil
			if r.reports.isFollowed() {
				timer.Reset(min(time.Until(due), hintedPoll))
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
