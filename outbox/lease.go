package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	leases "github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger"
)

var errLeaseLost = errors.New("another relay has taken the lease")

// lease is the row that decides which relay works. It avoids double work only: of two relays that both hold it, the
// stream accepts the messages of one, and the cursor its pages. It is a row, not a session's lock, so it
// works behind a pooler in transaction mode.
//
// The holder keeps one connection open and writes its server process into the row. When a process is killed, its
// connection ends at once: a relay that sees the server process gone need not wait until the lease expires. A holder
// that is merely slow keeps its connection. Behind a pooler the row names no server process. Each displacement doubles
// the wait before the next, so that relays rarely displace each other repeatedly.
type lease struct {
	db     *pgxpool.Pool
	holder string
	ttl    time.Duration

	changed chan struct{} // receives a value when the note has changed

	displacements displacements // of other holders by this relay; of the goroutine of await
	term          int64         // its beginning, by await

	mu   sync.Mutex
	note *leases.Note // guarded by mu; why the holder cannot work; nil before the first session
}

func newLease(db *pgxpool.Pool, name string, ttl time.Duration) *lease {
	return &lease{
		db: db, holder: name + "/" + strings.ToLower(rand.Text()[:8]), ttl: ttl, changed: make(chan struct{}, 1),
	}
}

// setNote sets why the holder cannot work, "" if it can, and requests that it be written at once. Before the first
// call, the last holder's note stays.
func (l *lease) setNote(why string) { l.set(leases.Note{Text: why}) }

// setError sets an error as the note.
func (l *lease) setError(err error) {
	n := leases.Note{Text: err.Error()}
	if isStoreFailure(err) {
		n.Cause = relays.CauseStore
	}
	l.set(n)
}

func (l *lease) set(note leases.Note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.note != nil && *l.note == note {
		return
	}
	l.note = &note
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *lease) currentNote() *leases.Note {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.note
}

// lookEvery returns the interval at which a relay that stands by reads the lease.
func (l *lease) lookEvery() time.Duration { return min(l.ttl/20, 250*time.Millisecond) }

// await waits until this relay holds the lease. It calls standby once if another relay holds it first. isConnected
// reports whether this relay could work in the place of a holder that cannot.
func (l *lease) await(ctx context.Context, isConnected func() bool, standby func()) error {
	var goneSince time.Time    // since when this relay has seen the holder's connection gone
	var gone leases.RelayState // that holder
	for first, displaced := true, ""; ; first = false {
		term, err := leases.TakeRelay(ctx, l.db, leases.RelayClaim{
			Holder: l.holder, For: l.ttl, Note: l.currentNote(), Displaced: displaced,
		})
		if l.term = term; term != 0 || err != nil {
			return err
		}
		if first {
			standby()
		}
		if err := loop.Sleep(ctx, l.lookEvery()); err != nil {
			return err
		}
		state, err := leases.LookAtRelay(ctx, l.db)
		if err != nil {
			return err
		}
		displaced = ""
		if !state.IsGone {
			state.Backend = 0
		}
		if state.Backend != gone.Backend {
			goneSince = time.Now()
		}
		gone = state
		patience := l.displacements.patience()
		switch {
		case state.IsGone && time.Since(goneSince) >= patience*l.lookEvery(): // else it may be connecting again
			displaced = state.Holder
		case state.Blocked > patience*2*l.ttl && isConnected():
			displaced = state.Holder
		}
		if displaced != "" {
			l.displacements.add(patience * 2 * l.ttl)
		}
	}
}

// displacements makes relays displace each other less often. On a slow machine each holder may look as if it could not
// work, and its successor starts over where it was about to continue. Each displacement soon after another doubles the
// patience.
type displacements struct {
	recent int
	until  time.Time // then the recent ones are over
}

// maxDisplacements bounds the patience.
const maxDisplacements = 5

// patience returns by how much longer than usual a holder must look as if it could not work.
func (d *displacements) patience() time.Duration {
	if time.Now().After(d.until) {
		d.recent = 0
	}
	return 1 << d.recent
}

// add counts a displacement after a holder has been blocked for some time.
func (d *displacements) add(blocked time.Duration) {
	d.recent = min(d.recent+1, maxDisplacements)
	d.until = time.Now().Add(8 * blocked)
}

// hold renews the lease until ctx is done, on a connection that it keeps open. It returns errLeaseLost if another relay
// has taken the lease, even if this relay has it again. It ignores an outage of the database, which ends the session.
func (l *lease) hold(ctx context.Context) error {
	var conn *pgx.Conn
	defer func() { closeConn(conn) }()
	delay := loop.Backoff{Min: minDelay, Max: l.ttl / 3, Exact: true}
	for {
		holds, err := l.renew(ctx, conn)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !holds:
			return errLeaseLost
		case err == nil && conn == nil: // renewed on a connection of the pool; the next renewal is on one of its own
			conn, err = l.connect(ctx)
		case err == nil:
			delay.Reset()
			l.rest(ctx, conn)
		}
		if err != nil || conn.IsClosed() {
			closeConn(conn)
			conn = nil
			_ = loop.Sleep(ctx, delay.Next())
		}
	}
}

// renew renews the lease on conn, or on a connection of the pool if conn is nil. It reports whether the term continues.
// It waits for the answer even if ctx ends: a statement that the server executes later would take back a yielded lease.
func (l *lease) renew(ctx context.Context, conn *pgx.Conn) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.ttl/3)
	defer cancel()
	claim := leases.RelayClaim{Holder: l.holder, For: l.ttl, Note: l.currentNote()}
	db := ledger.DB(l.db)
	if conn != nil {
		db, claim.Backend = conn, conn.PgConn().PID()
	}
	term, err := leases.TakeRelay(ctx, db, claim)
	return term == l.term, err
}

// connect takes a connection out of the pool.
func (l *lease) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/3)
	defer cancel()
	c, err := l.db.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return c.Hijack(), nil
}

// rest waits until the next renewal is due, the note has changed or the connection is lost.
func (l *lease) rest(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/3)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-l.changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	_, _ = conn.WaitForNotification(ctx) // none arrives, but the connection may end
	cancel()
	<-ended
}

func closeConn(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// yield lets another relay take the lease at once, and writes the reason into it.
func (l *lease) yield(ctx context.Context, why error) error {
	l.setError(why)
	return leases.YieldRelay(ctx, l.db, l.holder, why.Error(), isRefusal(why))
}

// release deletes the lease.
func (l *lease) release(ctx context.Context) error { return leases.ReleaseRelay(ctx, l.db, l.holder) }
