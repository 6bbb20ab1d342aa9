package workers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

const (
	// maxTogether bounds what one failure undoes.
	maxTogether = 100
	// togetherTime is how long a transaction may take before it takes in another task: those in it wait
	// for its end, and so does who waits for their locks.
	togetherTime = 20 * time.Millisecond
)

// together is a transaction that attempts share. Their handlers run one after the other, and either
// all of them succeed, and it commits, or it is undone, and each is tried again alone. So what becomes
// of a task that fails, is cancelled, times out or spoils its transaction is decided where nobody is
// beside it, and the others are none the worse for it but by the time.
type together struct {
	kind  *kind
	conn  handlerConn
	tx    *handlerTx
	began time.Time
	ran   []*attempt // whose handlers have begun
	left  int        // how many of them have ended
	err   error      // why it must not commit; nil: it may

	mu   sync.Mutex
	ours []*attempt // which of those that have ended are still to be seen to
}

// mayShare reports whether the attempt may share a transaction: it is its task's first, and nothing
// is on record of it.
func (a *attempt) mayShare() bool {
	return a.verdict == run && a.job.Attempt == 1 && !a.held.alone && a.finishBy.IsZero()
}

// companion takes an attempt that may share a transaction out of the line; nil if none is next.
func (k *kind) companion() *attempt {
	for {
		a := k.pool.turns.take(&k.line)
		if a == nil || k.begins(k.pool.stopping, a) {
			return a
		}
	}
}

// shares runs an attempt that has a connection in one transaction with others that wait. It reports
// false if there are none, or may be none.
func (k *kind) shares(first *attempt) bool {
	if k.config.Together == 1 || !first.mayShare() || !k.pool.turns.mayShare(&k.line) {
		return false
	}
	t := &together{kind: k, conn: first.conn, tx: first.newTx(k.pool.work, k.idle()), began: time.Now()}
	ctx, cancel := k.pool.operation()
	defer cancel()
	if err := t.tx.own.Open(ctx); err != nil { // their heads cannot be read, either
		k.again(first.held)
		return true
	}
	defer t.end()
	t.run(first)
	// The next one leaves the line when its turn has come: a handler may end its goroutine, or not return.
	for a := t.next(); a != nil; a = t.next() {
		k.running.Add(1)
		fault.Point(pointReady)
		a.conn, a.socket = first.conn, first.socket
		t.run(a)
	}
	return true
}

// next returns the attempt that goes on, nil if it is time for the end.
func (t *together) next() *attempt {
	if t.err != nil || len(t.ran) >= t.kind.config.Together || time.Since(t.began) > t.kind.pool.togetherTime {
		return nil
	}
	return t.kind.companion()
}

// run runs the handler of one attempt.
func (t *together) run(a *attempt) {
	t.ran = append(t.ran, a)
	t.err = errGoexit // unless the handler returns
	a.shared = t
	a.begin()
	t.err = a.call(t.tx)
	t.leave(a)
	if t.err != nil {
		return
	}
	switch conn := t.conn.Conn(); {
	case conn.IsClosed():
		t.err = errConnectionLost
	case conn.PgConn().IsBusy():
		t.err = errRowsOpen
	case conn.PgConn().TxStatus() != 'T':
		t.err = ledger.ErrTransactionAborted // or ended, see ended
	case a.lost:
		t.err = ErrFenced
	}
}

// leave ends an attempt, but for its outcome.
func (t *together) leave(a *attempt) {
	t.left++
	if _, ok := a.end(); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ours = append(t.ours, a)
	} else if t.err == nil {
		t.err = errConnectionLost // it was abandoned
	}
}

// take takes the attempts that are still to be seen to.
func (t *together) take() []*attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	ours := t.ours
	t.ours = nil
	return ours
}

// end commits what all have done, or undoes it. A handler may have ended its goroutine.
func (t *together) end() {
	k := t.kind
	defer func() {
		for _, a := range t.ran[1:] { // the first one is counted by its slot
			k.hand.pace.note(time.Since(a.decided))
			k.running.Add(-1)
		}
	}()
	if t.left < len(t.ran) {
		t.leave(t.ran[t.left])
	}
	ours := t.take()
	if len(ours) == 0 {
		return
	}
	for _, a := range ours {
		k.hand.over(a.held)
	}
	ctx, cancel := k.pool.operation()
	defer cancel()
	var events []ledger.Event
	if t.err == nil {
		fault.Point(pointHandler)
		requests := make([]ledger.AppendRequest, len(ours))
		for i, a := range ours {
			requests[i] = a.request(ledger.EventSucceeded, a.succeeded())
		}
		events, t.err = t.tx.own.AppendAndCommit(ctx, requests...)
	} else if t.ended(ctx) {
		t.err = ledger.ErrTransactionEnded
	}
	switch {
	case t.err == nil:
		for i, a := range ours {
			a.appended(events[i])
			k.recorded(a, OutcomeSucceeded, nil)
		}
	case errors.Is(t.err, ledger.ErrTransactionEnded): // by one of them, but what all of them wrote may be committed
		for _, a := range ours {
			k.fail(ctx, a, t.err, reasonEnded)
		}
	default:
		k.tryAlone(ctx, ours, t.err)
	}
}

// ended rolls the transaction back, and reports whether it was not ours any more.
func (t *together) ended(ctx context.Context) bool {
	conn := t.conn.Conn()
	if conn.IsClosed() || conn.PgConn().IsBusy() {
		return false // the server rolls back
	}
	status := conn.PgConn().TxStatus()
	if status == 'I' {
		return true
	}
	ended := false
	if status == 'T' {
		open, err := t.tx.own.IsOpen(ctx)
		ended = err == nil && !open
	}
	_, _ = conn.Exec(ctx, "rollback")
	return ended
}

// abandoned sees to the others after a handler was given up that may never return.
func (t *together) abandoned(err error) {
	ctx, cancel := t.kind.pool.operation()
	defer cancel()
	t.kind.tryAlone(ctx, t.take(), err)
}

// tryAlone has tasks decided again after the transaction that they shared was undone because of err,
// which is one's only.
func (k *kind) tryAlone(ctx context.Context, undone []*attempt, err error) {
	if len(undone) == 0 {
		return
	}
	k.logger.InfoContext(ctx, "tasks whose transaction is undone are tried again alone", "tasks", len(undone), "error", err)
	for _, a := range undone {
		a.err = err
		if a.claimed && k.pool.stopping.Err() != nil {
			k.interrupt(ctx, a)
			continue
		}
		k.ended(a, OutcomeRetried, nil)
		a.held.alone = true
		k.again(a.held)
	}
}
