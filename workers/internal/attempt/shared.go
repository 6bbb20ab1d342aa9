package attempt

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

// sharedTime is how long a shared transaction takes in further tasks: the tasks in it wait for its end, and
// so do those that wait for their locks.
const sharedTime = 20 * time.Millisecond

// shared is the transactor of attempts that share a transaction. Their handlers run one after the other.
// Either all succeed and it commits, or it is undone and each is tried again alone. So a task that fails,
// is cancelled, times out or spoils its transaction is dealt with where no other task is beside it; the
// others lose nothing but the time.
type shared struct {
	kind   *Kind
	tx     *Tx
	socket net.Conn
	began  time.Time

	// Of the slot's goroutine.
	ran []*Attempt // in order
	err error      // why the transaction must not commit; nil: it may

	mu       sync.Mutex
	finished []*Attempt // that have no outcome yet
}

// MayShare reports whether the attempt may share a transaction: it is its task's first one, and nothing of
// it is on record.
func MayShare(a *Attempt) bool {
	return a.verdict == Begin && a.number == 1 && !a.task.Alone && a.finishBy.IsZero()
}

// share returns a transaction for an attempt that may share one, nil if it has no companions. If it cannot
// begin, its attempts are decided again.
func (k *Kind) share(first *Attempt, conn Conn) *shared {
	if k.Shared <= 1 || !MayShare(first) || !k.HasCompanion(MayShare) {
		return nil
	}
	return &shared{kind: k, tx: newTx(k.work, conn, k.idle()), socket: conn.Conn().PgConn().Conn(), began: time.Now()}
}

// run runs the first attempt and others that wait.
func (s *shared) run(first *Attempt) {
	ctx, cancel := s.kind.Operation()
	defer cancel()
	if err := s.tx.Open(ctx); err != nil { // heads cannot be read, either
		s.kind.Again(first.task)
		return
	}
	defer s.end()
	// A companion leaves the line when its turn has come: a handler may end its goroutine or not return.
	for a := first; a != nil; a = s.next() {
		if a != first {
			s.kind.running.Add(1)
			fault.Point(pointReady)
		}
		s.ran = append(s.ran, a)
		a.perform(s)
	}
}

// next returns the attempt that runs next, nil if the transaction is to end.
func (s *shared) next() *Attempt {
	if s.err != nil || len(s.ran) >= s.kind.Shared || time.Since(s.began) > s.kind.sharedTime {
		return nil
	}
	return s.kind.Companion(MayShare)
}

func (s *shared) handle() pgx.Tx { return s.tx }

func (s *shared) check(_, err error) error {
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

// commit keeps the attempt for the end of the transaction.
func (s *shared) commit(a *Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = append(s.finished, a)
}

func (s *shared) undo(a *Attempt, _, err error) {
	if s.err = err; err == nil {
		s.err = ErrFenced
	}
	s.commit(a)
}

func (s *shared) close() { _ = s.socket.Close() }

// abandon tries the other attempts again alone: the handler may never return.
func (s *shared) abandon(a *Attempt, cause, err error) {
	ctx, cancel := s.kind.Operation()
	defer cancel()
	s.kind.tryAlone(ctx, s.take(), err)
	a.conclude(cause, err)
}

func (s *shared) returned(*Attempt) {
	if s.err == nil {
		s.err = ErrConnectionLost
	}
}

// take returns the attempts without an outcome, once.
func (s *shared) take() []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.finished
	s.finished = nil
	return all
}

// end commits for all attempts, or undoes the transaction.
func (s *shared) end() {
	defer func() {
		for _, a := range s.ran[1:] { // Run counts the first one
			s.kind.Tasks.NotePace(time.Since(a.decided))
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
			a.committed(ctx, events[i], nil)
		}
	case errors.Is(s.err, ledger.ErrTransactionEnded): // by one of them, but what all of them wrote may be committed
		for _, a := range all {
			a.fail(ctx, s.err, reasonEnded)
		}
	default:
		s.kind.tryAlone(ctx, all, s.err)
	}
}

func (s *shared) appendAndCommit(ctx context.Context, all []*Attempt) ([]ledger.Event, error) {
	requests := make([]ledger.AppendRequest, len(all))
	for i, a := range all {
		requests[i] = a.succeeded()
	}
	return s.tx.own.AppendAndCommit(ctx, requests...)
}

// hasEnded rolls the transaction back, and reports whether it had been ended by COMMIT or ROLLBACK in SQL.
func (s *shared) hasEnded(ctx context.Context) bool {
	conn := s.tx.conn.Conn()
	if conn.IsClosed() || conn.PgConn().IsBusy() {
		return false // the server rolls back
	}
	status := conn.PgConn().TxStatus()
	if status == 'I' {
		return true
	}
	ended := false
	if status == 'T' {
		open, err := s.tx.own.IsOpen(ctx)
		ended = err == nil && !open
	}
	_, _ = conn.Exec(ctx, "rollback")
	return ended
}

// tryAlone decides tasks again after the transaction that they shared was undone because of err, which
// concerns one of them.
func (k *Kind) tryAlone(ctx context.Context, undone []*Attempt, err error) {
	if len(undone) == 0 {
		return
	}
	k.Logger.InfoContext(ctx, "shared transaction undone; its tasks are tried again alone", "tasks", len(undone), "error", err)
	for _, a := range undone {
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
