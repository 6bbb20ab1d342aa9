package scheduler

import (
	"context"
	"crypto/rand"
	_ "embed"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/settings.sql
var settingsSQL string

// Scheduler fires due timers and discards tasks above their limit, see the package comment.
type Scheduler struct {
	config                Config
	releasable, expirable string // types of events that released and expired may follow, as array literals
	discarder             discarder
	awaiting              dependents
	obsolete              obsolete

	// The fields below belong to the goroutine of Run.

	horizon  horizon
	deferred deferrals
	clock    time.Time // the database's, when it was last read
	server   string    // the run of the server and the OID of its view, at the last poll

	// When to poll from the horizon, to poll from the beginning, to check for kinds above their limits, and to sample
	// the clock, by the monotonic clock.
	pollAt, pollAllAt, limitsAt, sampleAt time.Time
	activeAt                              time.Time   // when a poll last found a timer or work of the other loops
	hasFired                              bool        // timers were removed since the last sample
	isBehind                              bool        // the last batch was full
	turn                                  ledger.Kind // that had its turn last
}

// New returns a scheduler. It does not use the database yet. It returns the error of [Config.Validate].
func New(c Config) (*Scheduler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Scheduler{
		config: c, releasable: typesBefore(ledger.EventReleased), expirable: typesBefore(ledger.EventExpired),
		activeAt: time.Now(),
		awaiting: newAwaiting(c),
		obsolete: obsolete{config: c, wanted: newRequest()},
		discarder: discarder{
			config: c, backlogs: make(map[ledger.Kind]*backlog), holder: rand.Text(), wanted: newRequest(),
		},
	}, nil
}

// typesBefore returns the types of the events that an event of type t may follow, as array literal.
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

// Run works until ctx is done, and then returns nil. It retries through outages of the database. It returns
// an error only if retrying is useless: [ledger.ErrNotMigrated]. It must not be called twice at the same time.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { s.discarder.run(ctx) })
	others.Go(func() { s.awaiting.run(ctx) })
	others.Go(func() { s.obsolete.run(ctx) })
	defer others.Wait()
	defer stop()
	return loop.Steps{
		Step: s.step,
		Stop: pgerr.NotMigrated,
		Failed: func(ctx context.Context, err error, in time.Duration) {
			s.config.Logger.WarnContext(ctx, "cannot fire timers; retrying", "error", err, "retry_in", in)
		},
	}.Run(ctx)
}

// step fires a batch of due timers, one deferred group and, if it is behind, a turn. It returns how long to wait for
// the next step.
func (s *Scheduler) step(ctx context.Context) (time.Duration, error) {
	if s.hasFired && time.Now().After(s.sampleAt) {
		if err := s.sampleClock(ctx); err != nil {
			return 0, err
		}
	}
	if err := s.retryDeferred(ctx); err != nil {
		return 0, err
	}
	if s.isBehind {
		if err := s.fireTurn(ctx); err != nil {
			return 0, err
		}
	}
	wait, err := s.fireNext(ctx)
	return min(wait, s.deferred.wait()), err
}

// execute runs a statement that returns one row, in a transaction of its own with the scheduler's settings, in
// one round trip. It waits for a locked task for at most patience.
func (s *Scheduler) execute(ctx context.Context, patience time.Duration, sql string, args []any, into ...any) error {
	batch := &pgx.Batch{}
	batch.Queue(settingsSQL, lockTimeout(patience), "off")
	batch.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(into...) })
	return s.config.DB.SendBatch(ctx, batch).Close()
}

// lockTimeout returns a patience as a value of the setting lock_timeout.
func lockTimeout(patience time.Duration) string {
	return strconv.FormatInt(patience.Milliseconds(), 10) + "ms"
}
