package periodic

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/due.sql
	dueSQL string
	//go:embed sql/finished.sql
	finishedSQL string
	//go:embed sql/wait.sql
	waitSQL string
)

const (
	// maxSleep is the longest sleep of a runner: the greatest delay until it detects that a schedule was changed, or
	// that the task before a fixed delay has finished.
	maxSleep = time.Second
	// retryAfter is the pause after a failure of one schedule.
	retryAfter = 30 * time.Second
	// minLockedSleep is the first sleep of a runner while every schedule that is due is locked, by another
	// runner or by an open transaction of an operator. The sleep doubles until maxLockedSleep.
	minLockedSleep = 10 * time.Millisecond
	maxLockedSleep = 500 * time.Millisecond
)

// begin begins a transaction that the server ends if the runner freezes, because that would block the schedule for all
// other runners. Its statements do not wait long for a transaction that has enqueued a firing's key.
const begin = "begin isolation level read committed; set local idle_in_transaction_session_timeout to '5s'; " +
	"set local lock_timeout to '20ms'"

// Run fires all schedules when they are due, until ctx is done, and then returns nil. Any number of processes may run
// it; package services does. It uses one connection of db, the primary database, at a time, and retries while the
// database is unavailable. It returns an error only if retrying is useless: [ledger.ErrNotMigrated].
//
// log receives outages, firings that were passed over or whose key an open transaction holds, and schedules that cannot
// fire. Default: [slog.Default].
func Run(ctx context.Context, db *pgxpool.Pool, log *slog.Logger) error {
	return newRunner(db, log).run(ctx)
}

// runner fires all schedules when they are due. Its run is for one goroutine.
type runner struct {
	db          *pgxpool.Pool
	log         *slog.Logger
	finishing   string               // event types that finish a task, as array literal
	failed      map[string]time.Time // when to retry schedules that failed, by this machine's monotonic clock
	locked      map[string]*lockedFiring
	lockedSleep time.Duration // the next sleep while every schedule that is due is locked
	clock       time.Duration // added to the database's clock; set by tests
}

// newRunner returns a runner. It does not use the database.
func newRunner(db *pgxpool.Pool, log *slog.Logger) *runner {
	if log == nil {
		log = slog.Default()
	}
	var finishing []string
	for _, row := range ledger.Transitions() {
		if row.To.Finished() {
			finishing = append(finishing, string(row.Type))
		}
	}
	return &runner{
		db: db, log: log, finishing: pgarray.Of(finishing...), failed: make(map[string]time.Time),
		locked: make(map[string]*lockedFiring), lockedSleep: minLockedSleep,
	}
}

func (r *runner) run(ctx context.Context) error {
	return loop.Steps{
		Step: r.pass,
		Stop: pgerr.NotMigrated,
		Failed: func(ctx context.Context, err error, in time.Duration) {
			r.log.WarnContext(ctx, "schedules interrupted; retrying", "error", err, "retry_in", in)
		},
	}.Run(ctx)
}

// pass fires all schedules that are due, and returns how long to sleep. While nothing is due, it executes one
// statement.
func (r *runner) pass(ctx context.Context) (time.Duration, error) {
	next, err := r.next(ctx)
	if err != nil {
		return 0, err
	}
	if next.hasWaiting {
		if _, err := r.db.Exec(ctx, finishedSQL, r.finishing); err != nil {
			return 0, pgerr.Explain("find finished tasks", err)
		}
	} else if !next.isDue() {
		return next.sleep(), nil
	}
	for {
		begun := time.Now()
		name, err := r.fireOne(ctx)
		switch {
		case name == "" && err != nil:
			return 0, err
		case name == "":
			return r.sleep(ctx)
		case err == nil:
			r.lockedSleep = minLockedSleep
			r.unlock(name)
		case pgerr.Is(err, pgerr.LockNotAvailable):
			r.deferLocked(ctx, name, time.Since(begun), err)
		case ctx.Err() != nil || isOutage(err):
			return 0, err
		default:
			r.failed[name] = time.Now().Add(retryAfter)
			r.log.ErrorContext(ctx, "schedule cannot fire",
				"schedule", name, "error", err, "retry_in", retryAfter)
		}
	}
}

// isOutage reports whether an error does not come from the schedule.
func isOutage(err error) bool {
	return ledger.Retryable(err) || errors.Is(err, ledger.ErrNotMigrated) || errors.Is(err, errConnectionEnded)
}

// fireOne fires one schedule that is due and returns its name, "" if no schedule is due.
func (r *runner) fireOne(ctx context.Context) (name string, err error) {
	tx, err := r.db.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return "", pgerr.Explain("begin", err)
	}
	defer pgquery.Rollback(ctx, tx) // after the commit it does nothing
	s, now, err := scan(tx.QueryRow(ctx, dueSQL, r.clock.Microseconds(), r.leaveOut()))
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", pgerr.Explain("find a schedule that is due", err)
	}
	name = s.Schedule.Name
	due, faults := s.Schedule.compile()
	if len(faults) > 0 { // written by SQL, or in a zone that is unknown on this machine
		return name, errors.Join(faults...)
	}
	p := planFor(s.Schedule, due, s.NextAt, now)
	taken, err := execute(ctx, tx, s, p, reasonMissed)
	if err == nil {
		fault.Point(pointFired)
		err = pgerr.Explain("commit", tx.Commit(ctx))
	}
	if err != nil && tx.Conn().IsClosed() { // the last error of a lost connection may have any class
		err = fmt.Errorf("%w: %w", errConnectionEnded, err)
	}
	if err != nil {
		return name, fmt.Errorf("schedule %s: %w", name, err)
	}
	for _, k := range taken {
		r.log.ErrorContext(ctx, "schedule passed over a firing: another process has enqueued its task",
			"schedule", name, "task", k.String())
	}
	if p.passed.count > 0 {
		r.log.WarnContext(ctx, "schedule missed firings", "schedule", name,
			"firings", p.passed.count, "or_more", p.passed.more, "from", p.passed.from, "to", p.passed.to)
	}
	return name, nil
}

// leaveOut returns the schedules that failed or were locked and are not to be retried yet, as array literal.
func (r *runner) leaveOut() string {
	names := r.waiting()
	for name, until := range r.failed {
		if time.Now().After(until) {
			delete(r.failed, name)
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return pgarray.Of(names...)
}

// sleep returns how long to sleep after a pass that has fired schedules.
func (r *runner) sleep(ctx context.Context) (time.Duration, error) {
	next, err := r.next(ctx)
	if err != nil || !next.isDue() {
		return next.sleep(), err
	}
	d := r.lockedSleep // it is locked by another transaction
	r.lockedSleep = min(2*d, maxLockedSleep)
	return d, nil
}

// nextFiring is when the next schedule is due, as far as known.
type nextFiring struct {
	in         *int64 // microseconds; nil if no firing follows
	hasWaiting bool   // a schedule with a fixed delay waits until its previous task has finished
}

func (n nextFiring) isDue() bool { return n.in != nil && *n.in <= 0 }

// sleep returns how long to sleep until a schedule is due.
func (n nextFiring) sleep() time.Duration {
	if n.in == nil {
		return loop.Align(maxSleep)
	}
	return min(maxSleep, time.Duration(*n.in)*time.Microsecond)
}

// next reads when the next schedule is due.
func (r *runner) next(ctx context.Context) (n nextFiring, err error) {
	err = r.db.QueryRow(ctx, waitSQL, r.clock.Microseconds(), r.leaveOut()).Scan(&n.in, &n.hasWaiting)
	return n, pgerr.Explain("find the next firing", err)
}
