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

// Config of a [Runner].
type Config struct {
	// DB is the primary database. One of its connections is in use at a time. Required.
	DB *pgxpool.Pool
	// Logger hears of slots that were passed over, of schedules that cannot be carried out, and of
	// outages. Nil: nobody.
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	if c.DB == nil {
		return errors.New("periodic: DB is required")
	}
	return nil
}

const (
	// maxIdle is how long a runner sleeps at most: so soon it notices that a schedule was
	// changed, or that a task has finished that another waits for.
	maxIdle = time.Second
	// retryAfter is how long a schedule is left alone that could not be carried out.
	retryAfter = 30 * time.Second

	// inHand is how long a runner leaves a slot alone that is due and in somebody's hands, the
	// first time: a runner's, or an operator's open transaction.
	inHand = 10 * time.Millisecond

	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// begin makes the server end the transaction of a runner that is frozen, which would keep the
// schedule from all others.
const begin = "begin isolation level read committed; set local idle_in_transaction_session_timeout to '5s'"

// Runner fires the slots of all schedules when they are due. Any number may run.
type Runner struct {
	config    Config
	finishing string               // event types that finish a task, as array literal
	broken    map[string]time.Time // schedules that could not be carried out: when to try again, by the monotonic clock
	inHand    time.Duration        // how long to leave alone what is due and in somebody's hands
	clock     time.Duration        // added to the database's clock: tests set it
}

// New returns a runner. It does not use the database yet. It returns the error of
// [Config.Validate].
func New(c Config) (*Runner, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var finishing []string
	for _, row := range ledger.Transitions() {
		if row.To.Finished() {
			finishing = append(finishing, string(row.Type))
		}
	}
	return &Runner{config: c, finishing: pgarray.Of(finishing...), broken: make(map[string]time.Time), inHand: inHand}, nil
}

// Run fires slots until ctx is done, and then returns nil. It goes on through outages of the
// database, and returns an error only where it must not go on: [ledger.ErrNotMigrated].
func (r *Runner) Run(ctx context.Context) error {
	return loop.Steps{
		Step: r.pass,
		Stop: pgerr.NotMigrated,
		Failed: func(ctx context.Context, err error, in time.Duration) {
			r.config.Logger.WarnContext(ctx, "periodic tasks interrupted; trying again", "error", err, "in", in)
		},
	}.Run(ctx)
}

// pass fires all that is due, and returns for how long nothing will be.
func (r *Runner) pass(ctx context.Context) (time.Duration, error) {
	if _, err := r.config.DB.Exec(ctx, finishedSQL, r.finishing); err != nil {
		return 0, pgerr.Explain("look for finished tasks", err)
	}
	for {
		name, err := r.fireOne(ctx)
		switch {
		case name == "" && err != nil:
			return 0, err
		case name == "":
			return r.idle(ctx)
		case err == nil:
			r.inHand = inHand
		case ctx.Err() != nil || ledger.Retryable(err) || errors.Is(err, ledger.ErrNotMigrated) || errors.Is(err, errConnectionEnded):
			return 0, err
		case err != nil: // it is the schedule's fault
			r.broken[name] = time.Now().Add(retryAfter)
			r.config.Logger.ErrorContext(ctx, "a schedule cannot be carried out", "schedule", name, "error", err, "again_in", retryAfter)
		}
	}
}

// fireOne fires what is due of one schedule, and returns its name, "" if none is due.
func (r *Runner) fireOne(ctx context.Context) (name string, err error) {
	tx, err := r.config.DB.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return "", pgerr.Explain("begin", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after the commit it does nothing
	s, now, err := scan(tx.QueryRow(ctx, dueSQL, r.clock.Microseconds(), r.leaveOut()))
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", pgerr.Explain("look for schedules that are due", err)
	}
	name = s.Schedule.Name
	due, faults := s.Schedule.compile()
	if len(faults) > 0 { // written by SQL, or with zones that this machine does not have
		return name, errors.Join(faults...)
	}
	p := planFor(s.Schedule, due, s.NextAt, now)
	err = carryOut(ctx, tx, s, p, ReasonMissed)
	if err == nil {
		fault.Point(pointFired)
		err = pgerr.Explain("commit", tx.Commit(ctx))
	}
	if err != nil && tx.Conn().IsClosed() { // whatever was said last
		err = fmt.Errorf("%w: %w", errConnectionEnded, err)
	}
	if err != nil {
		return name, fmt.Errorf("schedule %s: %w", name, err)
	}
	if p.passed.count > 0 {
		r.config.Logger.WarnContext(ctx, "a schedule has missed slots", "schedule", name,
			"slots", p.passed.count, "or_more", p.passed.more, "from", p.passed.from, "to", p.passed.to)
	}
	return name, nil
}

// leaveOut returns the schedules that are not to be tried yet, as array literal.
func (r *Runner) leaveOut() string {
	var names []string
	for name, until := range r.broken {
		if time.Now().After(until) {
			delete(r.broken, name)
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return pgarray.Of(names...)
}

// idle returns for how long nothing is due.
func (r *Runner) idle(ctx context.Context) (time.Duration, error) {
	var us *int64
	if err := r.config.DB.QueryRow(ctx, waitSQL, r.clock.Microseconds(), r.leaveOut()).Scan(&us); err != nil {
		return 0, pgerr.Explain("look for the next slot", err)
	}
	if us == nil {
		return maxIdle, nil
	}
	if *us <= 0 {
		r.inHand = min(2*r.inHand, maxIdle)
		return r.inHand / 2, nil
	}
	return min(maxIdle, time.Duration(*us)*time.Microsecond), nil
}
