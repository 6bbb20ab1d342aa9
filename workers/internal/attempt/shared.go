package attempt

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
)

// sharedTime is how long a shared transaction takes in further tasks. Its tasks, and transactions that need its locks,
// wait for its end.
const sharedTime = 20 * time.Millisecond

// sharedTx is the transactor of attempts that share a transaction. Their handlers run one after the other. If all
// succeed it commits; otherwise it is rolled back and each is tried again alone. So a task that fails, is cancelled,
// times out or aborts its transaction is handled without other tasks; the others lose only time.
type sharedTx struct {
	// Constant.
	kind    *Kind
	tx      *Tx
	beganAt time.Time

	// Of the slot's goroutine.
	attempts []*Attempt // that have run, in order
	err      error      // why the transaction must not commit, or nil

	mu      sync.Mutex
	pending []*Attempt // finished and without an outcome yet; guarded by mu
}

// CanShare reports whether the attempt may share a transaction: it is its task's first attempt, and has no recorded
// event.
func CanShare(a *Attempt) bool {
	return a.verdict == Begin && a.number == 1 && !a.task.Alone && a.finishBy.IsZero()
}

// share returns a transaction for an attempt that may share one, or nil if it has no companions. If it cannot begin,
// its attempts are decided again.
func (k *Kind) share(first *Attempt, conn Conn) *sharedTx {
	if k.Shared <= 1 || !CanShare(first) || !k.HasCompanion(CanShare) {
		return nil
	}
	return &sharedTx{
		kind: k, tx: newTx(k.work, conn, k.idle()), beganAt: time.Now(),
	}
}

// run runs the first attempt and waiting companions.
func (s *sharedTx) run(first *Attempt) {
	ctx, cancel := s.kind.Operation()
	defer cancel()
	if err := s.tx.Open(ctx); err != nil { // heads cannot be read either
		s.kind.Again(first.task)
		return
	}
	defer s.end()
	// A companion leaves the line only when it runs: a handler may end its goroutine or not return.
	for a := first; a != nil; a = s.next() {
		if a != first {
			s.kind.running.Add(1)
			fault.Point(pointReady)
		}
		s.attempts = append(s.attempts, a)
		a.perform(s)
	}
}

// next returns the attempt that runs next, or nil if the transaction must end.
func (s *sharedTx) next() *Attempt {
	if s.err != nil || len(s.attempts) >= s.kind.Shared || time.Since(s.beganAt) > s.kind.sharedTime {
		return nil
	}
	return s.kind.Companion(CanShare)
}

func (s *sharedTx) handle() pgx.Tx { return s.tx }

func (s *sharedTx) check(_, err error) error {
	switch conn := s.tx.conn.Conn(); {
	case err != nil:
		return err
	case conn.IsClosed():
		return ErrConnectionLost
	case conn.PgConn().IsBusy():
		return ErrRowsOpen
	case conn.PgConn().TxStatus() != 'T':
		return ledger.ErrTransactionAborted // or ended, see hasEnded
	}
	return nil
}

// commit stores the attempt for the end of the transaction.
func (s *sharedTx) commit(a *Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, a)
}

func (s *sharedTx) undo(a *Attempt, _, err error) {
	if s.err = err; err == nil {
		s.err = ErrFenced
	}
	s.commit(a)
}

func (s *sharedTx) close() { s.tx.conn.Abandon() }

// abandon tries the other attempts again alone: the handler may never return.
func (s *sharedTx) abandon(a *Attempt, cause, err error) {
	ctx, cancel := s.kind.Operation()
	defer cancel()
	s.kind.tryAlone(ctx, s.take(), err)
	a.conclude(cause, err)
}

func (s *sharedTx) returned(*Attempt) {
	if s.err == nil {
		s.err = ErrConnectionLost
	}
}

// take returns the attempts without an outcome, and forgets them.
func (s *sharedTx) take() []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.pending
	s.pending = nil
	return all
}

// end commits for all attempts, or rolls the transaction back.
func (s *sharedTx) end() {
	defer func() {
		for _, a := range s.attempts[1:] { // Run counts the first one
			s.kind.Tasks.NotePace(time.Since(a.decidedAt))
			s.kind.running.Add(-1)
		}
	}()
	all := s.take()
	if len(all) == 0 {
		return
	}
	ctx, cancel := s.kind.Operation()
	defer cancel()
	var events []ledger.Event
	if s.err == nil {
		events, s.err = s.appendAndCommit(ctx, all)
	} else if s.hasEnded(ctx) {
		s.err = ledger.ErrTransactionEnded
	}
	switch {
	case s.err == nil:
		for i, a := range all {
			a.committed(events[i], nil)
		}
	case errors.Is(s.err, ledger.ErrTransactionEnded): // by one of them, but the writes of all may be committed
		for _, a := range all {
			a.fail(ctx, s.err, reasonEnded)
		}
	default:
		s.kind.tryAlone(ctx, all, s.err)
	}
}

func (s *sharedTx) appendAndCommit(ctx context.Context, all []*Attempt) ([]ledger.Event, error) {
	requests := make([]ledger.AppendRequest, len(all))
	for i, a := range all {
		requests[i] = a.succeeded()
		unexported.SetLastEvent(&requests[i], a.last())
	}
	return s.tx.own.AppendAndCommit(ctx, requests...)
}

// hasEnded rolls the transaction back. It reports whether a handler ended it by COMMIT or ROLLBACK in SQL.
func (s *sharedTx) hasEnded(ctx context.Context) (ended bool) {
	conn := s.tx.conn.Conn()
	if conn.IsClosed() || conn.PgConn().IsBusy() {
		return false // the server rolls back
	}
	switch conn.PgConn().TxStatus() {
	case 'I':
		ended = true
	case 'T':
		open, err := s.tx.own.IsOpen(ctx)
		ended = err == nil && !open
	}
	_ = s.tx.own.Rollback(ctx)
	return ended
}

// tryAlone decides tasks again after their shared transaction was rolled back because of err, an error of one of them.
func (k *Kind) tryAlone(ctx context.Context, attempts []*Attempt, err error) {
	if len(attempts) == 0 {
		return
	}
	k.Logger.InfoContext(ctx, "rolled back a shared transaction; its tasks are tried again alone",
		"tasks", len(attempts), "error", err)
	for _, a := range attempts {
		a.err = err
		if a.claimed && k.IsStopping() {
			a.interrupt(ctx)
			continue
		}
		a.endWith(OutcomeRetried, nil)
		a.task.Alone = true
		k.Again(a.task)
	}
}
