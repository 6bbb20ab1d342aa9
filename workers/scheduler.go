package workers

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
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
	//go:embed sql/timers_fire.sql
	timersFireSQL string
	//go:embed sql/timers_lowest.sql
	timersLowestSQL string
	//go:embed sql/scheduler_mark.sql
	schedulerMarkSQL string
	//go:embed sql/scheduler_settings.sql
	schedulerSettingsSQL string
)

// The crash points of a scheduler, for internal/fault.
const (
	pointFiring = "scheduler.firing" // timers are about to be fired
	pointFired  = "scheduler.fired"  // they are, and their events are committed
)

// SchedulerConfig says how a [Scheduler] works.
type SchedulerConfig struct {
	// DB is the primary. At most two of its connections are in use at a time. Required.
	DB *pgxpool.Pool
	// Logger hears of outages, and of tasks that somebody keeps locked. Nil: nobody.
	Logger *slog.Logger
	// Fired is told of each batch, for metrics. Nil: nobody.
	Fired func(Firing)
	// Discarded is told how many waiting tasks of a kind were discarded, since too many waited
	// (ledger.DiscardOldest), for metrics. Nil: nobody.
	Discarded func(kind ledger.Kind, tasks int)
}

// Validate reports every fault at once.
func (c SchedulerConfig) Validate() error {
	if c.DB == nil {
		return errors.New("workers: DB is required")
	}
	return nil
}

// Firing is one batch of timers.
type Firing struct {
	Timers   int           // in hand; those whose task had moved on had nothing to do
	Released int           // events appended
	Expired  int           // events appended
	Late     time.Duration // how long the first had been due, by the database's clock
}

// Scheduler appends what is due: released to tasks that were scheduled or wait for a retry,
// expired to those whose deadline passes while they wait, and discarded to the oldest that wait
// where too many do, and the limit says so ([ledger.DiscardOldest]). Any number may run, in any number of
// processes: they share the work, and nothing is done twice. The database's clock decides; that
// of this machine is of no account.
type Scheduler struct {
	config            SchedulerConfig
	released, expired string // types of events that these may follow, as array literals

	shedder shedder

	marks marks
	clock time.Time // the database's, when it was last seen
	aside aside

	// When to look, by the monotonic clock: from safe, from the beginning, and to set a mark.
	lookAt, lookAllAt, markAt time.Time
	worked                    bool // timers were removed since the last mark
}

const (
	maxFiring = 1000
	// maxIdleLook is how long a scheduler sleeps at most.
	maxIdleLook = 50 * time.Millisecond
	// lookShare is which part of the time may go to stepping over what is dead in the index.
	lookShare = 10
	// lookAllEvery is how often the whole index is looked at, if that is cheap: nothing should
	// ever be found by it, but clocks are set, and people write into tables.
	lookAllEvery = time.Minute
	lookAllShare = 1000
	markEvery    = time.Second
)

// NewScheduler returns a scheduler. It does not use the database yet. It returns the error of
// [SchedulerConfig.Validate].
func NewScheduler(c SchedulerConfig) (*Scheduler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler{
		config: c, released: typesBefore(ledger.EventReleased), expired: typesBefore(ledger.EventExpired),
	}
	s.shedder = shedder{scheduler: s, places: make(map[ledger.Kind]*waitingFrom)}
	return s, nil
}

// typesBefore returns the types of the events that one of type t may follow, as array literal.
func typesBefore(t ledger.EventType) string {
	var types []string
	table := ledger.Transitions()
	i := slices.IndexFunc(table, func(row ledger.Transition) bool { return row.Type == t })
	for _, row := range table {
		if slices.Contains(table[i].From, row.To) {
			types = append(types, string(row.Type))
		}
	}
	return pgarray.Of(types...)
}

// Run works until ctx is done, and then returns nil. It goes on through outages of the
// database, and returns an error only where it must not go on: [ledger.ErrNotMigrated]. It may
// be called once at a time.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var shedding sync.WaitGroup
	shedding.Go(func() { s.shedder.run(ctx) })
	defer shedding.Wait()
	defer stop()
	return loop.Steps{
		Step: s.pass,
		Stop: pgerr.NotMigrated,
		Failed: func(ctx context.Context, err error, in time.Duration) {
			s.config.Logger.WarnContext(ctx, "scheduler interrupted; trying again", "error", err, "in", in)
		},
	}.Run(ctx)
}

// pass fires a batch of what is due, and tries some of what was set aside. It returns how long to
// wait.
func (s *Scheduler) pass(ctx context.Context) (time.Duration, error) {
	if s.worked && time.Now().After(s.markAt) {
		if err := s.setMark(ctx); err != nil {
			return 0, err
		}
	}
	if err := s.tryAside(ctx); err != nil {
		return 0, err
	}
	wait, err := s.next(ctx)
	return min(wait, s.aside.wait()), err
}

// next looks whether something is due, and fires a batch of it.
func (s *Scheduler) next(ctx context.Context) (time.Duration, error) {
	if time.Now().After(s.lookAt) {
		lowest, err := s.look(ctx)
		if err != nil {
			return 0, err
		}
		if lowest.IsZero() || lowest.After(s.clock) {
			return s.until(lowest), nil
		}
	}
	f, err := s.fire(ctx, pgquery.Time(s.marks.next), nil)
	if pgerr.Is(err, pgerr.LockNotAvailable) {
		return s.setAside(ctx)
	}
	if err != nil {
		return 0, err
	}
	if !f.back {
		s.marks.next = f.next
	}
	if f.Timers == 0 {
		return maxIdleLook, nil
	}
	return 0, nil
}

// until is how long nothing is due; zero: nothing waits.
func (s *Scheduler) until(lowest time.Time) time.Duration {
	if lowest.IsZero() {
		return maxIdleLook
	}
	return min(maxIdleLook, max(time.Millisecond, lowest.Sub(s.clock)))
}

// fired is a batch, and from where on there may be more.
type fired struct {
	Firing
	elsewhere int // of only some: timers that another scheduler has in hand
	next      time.Time
	back      bool // the database's clock was set back, so that next means nothing
}

// fire fires a batch of what is due from a moment on: but for what is set aside, or only some.
func (s *Scheduler) fire(ctx context.Context, from string, only []dueTask) (fired, error) {
	fault.Point(pointFiring)
	leaveOut, to, patience := s.aside.literal(), "infinity", firePatience
	if only != nil {
		leaveOut, to, patience = "{}", pgquery.Time(only[len(only)-1].at), asidePatience
	}
	var f fired
	var kept int
	var clock time.Time
	var first, last *time.Time
	args := []any{from, int64(maxFiring), s.released, s.expired, leaveOut, keysLiteral(only), to}
	err := s.query(ctx, patience, timersFireSQL, args, &clock, &f.Timers, &f.Released, &f.Expired, &kept, &f.elsewhere, &first, &last)
	if err != nil {
		return f, err
	}
	fault.Point(pointFired)
	s.worked = s.worked || f.Timers > 0
	f.back = s.saw(clock)
	switch {
	case kept > 0:
		f.next = *first
	case f.Timers == maxFiring:
		f.next = *last
	default:
		f.next = clock // all that was due was taken, by somebody
	}
	if first != nil && !f.back {
		f.Late = clock.Sub(*first)
	}
	if f.Timers > 0 && s.config.Fired != nil {
		s.config.Fired(f.Firing)
	}
	return f, nil
}

// query runs a statement that answers one row, in a transaction of its own with the scheduler's
// settings, in one round trip. It waits for patience at most for a task that somebody has locked.
func (s *Scheduler) query(ctx context.Context, patience time.Duration, sql string, args []any, into ...any) error {
	batch := &pgx.Batch{}
	batch.Queue(schedulerSettingsSQL, lockTimeout(patience), "off")
	batch.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(into...) })
	return s.config.DB.SendBatch(ctx, batch).Close()
}

// lockTimeout is a patience as the setting has it.
func lockTimeout(patience time.Duration) string {
	return strconv.FormatInt(patience.Milliseconds(), 10) + "ms"
}
