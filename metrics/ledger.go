package metrics

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/projector"
)

// timeout bounds a scrape. Prometheus waits 10 s by default.
const timeout = 9 * time.Second

// LedgerConfig configures [NewLedger].
type LedgerConfig struct {
	// DB is the database of the ledger, with the role reader or relay. Required.
	DB ledger.DB
	// NATS reads the state of the stream. Default: it is not read.
	NATS *nats.Conn
	// Report reads the conditions and the numbers; services set it. Default: they are read from DB and NATS.
	Report func(context.Context) (health.Report, error)
	// Logger logs why the ledger cannot be read, once for each reason. Default: [slog.Default].
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c LedgerConfig) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("metrics: DB is required"))
	}
	return errors.Join(faults...)
}

// ledgerCollector reads the ledger at each scrape.
type ledgerCollector struct {
	config LedgerConfig

	mu     sync.Mutex // scrapes do not overlap
	stats  statistics
	logged string
}

// NewLedger returns a collector of the metrics of a ledger. Each scrape reads one report and the statistics of the last
// minutes; its cost does not grow with the ledger.
func NewLedger(c LedgerConfig) (prometheus.Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Report == nil {
		c.Report = c.reader()
	}
	return &ledgerCollector{config: c}, nil
}

// reader returns a function that reads the conditions and the numbers.
func (c LedgerConfig) reader() func(context.Context) (health.Report, error) {
	var numbers health.Numbers
	return func(ctx context.Context) (health.Report, error) {
		h := health.Config{DB: c.DB, Numbers: &numbers}
		if c.NATS != nil {
			if h.JetStream, h.NATSError = jetstream.New(c.NATS); h.NATSError != nil {
				h.JetStream = nil
			}
		}
		return health.Read(ctx, h)
	}
}

// Describe implements [prometheus.Collector].
func (c *ledgerCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range definitions[:slices.Index(definitions, build)] {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *ledgerCollector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	values, err := c.read(ctx)
	c.log(ctx, err)
	values.bool(readable, err == nil)
	for _, m := range values {
		to <- m
	}
}

// log logs a reason when it begins.
func (c *ledgerCollector) log(ctx context.Context, err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if reason != c.logged && reason != "" {
		c.config.Logger.WarnContext(ctx, "cannot read the ledger for its metrics", "error", reason)
	}
	c.logged = reason
}

// read returns all values, or none.
func (c *ledgerCollector) read(ctx context.Context) (values, error) {
	report, err := c.config.Report(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.stats.read(ctx, c.config.DB, report); err != nil {
		return nil, err
	}
	oldest, _, err := projector.ReadOldest(ctx, c.config.DB)
	if err != nil {
		return nil, err
	}
	limits, err := ledger.ReadStartLimits(ctx, c.config.DB, "", "", math.MaxInt32)
	if err != nil {
		return nil, err
	}
	var v values
	v.report(report)
	v.limits(&c.stats, limits)
	v.kinds(&c.stats, report, oldest)
	v.relay(report)
	v.readers(report)
	return v, nil
}

// report adds the conditions, and the numbers that do not belong to a kind.
func (v *values) report(r health.Report) {
	holds := make(map[health.Name]int)
	for _, held := range r.Degraded {
		holds[held.Name]++
	}
	for _, d := range health.Definitions() {
		v.number(conditions, holds[d.Name], string(d.Name))
	}
	v.number(paused, len(r.Paused))
	v.number(stoppedLines, len(r.StoppedLines))
	held, overdue := 0, time.Duration(0) // without an archive
	if a := r.Archive; a != nil && a.Held > 0 {
		held, overdue = int(a.Held), a.Cutoff.Sub(a.HeldSince)
	}
	v.number(archiveHeld, held)
	v.seconds(archiveOldest, overdue)
	v.number(rejected, int(r.Rejected))
	v.number(timersDue, r.Timers.Due)
	v.seconds(timersLate, r.Timers.Late())
	var late time.Duration
	if all := r.Schedules.Late; len(all) > 0 {
		late = max(late, r.At.Sub(all[0].NextAt))
	}
	v.seconds(schedulesLate, late)
	v.number(alarmsUndelivered, len(r.Alarms))
	var oldest time.Duration
	if r.Outbox.Oldest != nil {
		oldest = r.Outbox.Oldest.Age
	}
	v.seconds(oldestTransaction, oldest)
}

// limits adds the limits of starts, and their use.
func (v *values) limits(s *statistics, limits []ledger.StartLimitStatus) {
	type use struct {
		most, running int
		waiting       int64
	}
	uses := make(map[string]use)
	for _, l := range limits {
		label := s.labels.of(ledger.Kind(l.Name))
		u := uses[label]
		if l.MaxRunning != nil && l.Per == "" {
			u.most += *l.MaxRunning
		}
		uses[label] = use{u.most, u.running + l.Running, u.waiting + l.Waiting}
	}
	for label, u := range uses {
		if u.most > 0 {
			v.number(concurrencyLimit, u.most, label)
		}
		v.number(permitsInUse, u.running, label)
		v.number(limitWaiting, int(u.waiting), label)
	}
}

// kinds adds the numbers of each kind.
func (v *values) kinds(s *statistics, r health.Report, oldest map[ledger.Kind]time.Time) {
	type state struct{ kind, state string }
	inState := make(map[state]int64)
	summed := make(map[ledger.Kind]bool)
	for _, n := range r.Tasks {
		label := s.labels.of(n.Kind)
		inState[state{label, string(n.State)}] += n.Tasks
		if label == others {
			summed[n.Kind] = true
		}
	}
	v.number(kindsSummed, len(summed))
	for of, n := range inState {
		v.number(tasks, int(n), of.kind, of.state)
	}
	for kind, total := range s.totals() {
		v.number(enqueued, int(total.Enqueued), kind)
		v.number(started, int(total.Started), kind)
		v.number(succeeded, int(total.Succeeded), kind)
		v.number(failed, int(total.Failed), kind)
		v.number(dead, int(total.Dead), kind)
		v.number(cancelled, int(total.Cancelled), kind)
		v.histogram(waiting, total.Waiting, kind)
		v.histogram(running, total.Running, kind)
	}
	ages := make(map[string]time.Duration)
	for kind, at := range oldest {
		label := s.labels.of(kind)
		ages[label] = max(ages[label], r.At.Sub(at))
	}
	for kind, age := range ages {
		v.seconds(oldestWaiting, age, kind)
	}
	without := make(map[string]int64)
	for _, u := range r.Unhandled {
		without[s.labels.of(u.Kind)] += u.Waiting
	}
	for kind, n := range without {
		v.number(unhandled, int(n), kind)
	}
}

func (v *values) relay(r health.Report) {
	o := r.Outbox
	if o.IsOff {
		return
	}
	v.number(relayLag, int(o.Waiting))
	v.seconds(relayLagSeconds, o.OldestWaiting)
	v.bool(relayAlive, o.Relay != nil && o.Relay.Alive)
	v.bool(dispatcherAlive, r.Dispatcher.Alive)
	v.number(dispatcherEpoch, int(r.Dispatcher.Epoch))
	if o.Relay != nil {
		v.number(relayInfo, 1, o.Relay.Holder)
	}
	v.number(parked, int(o.Parked))
	v.number(generation, o.Generation)
	if o.Stream == nil {
		return
	}
	v.number(streamMessages, int(o.Stream.Messages))
	v.number(streamBytes, int(o.Stream.Bytes))
	if o.Stream.MaxBytes > 0 {
		v.number(streamMaxBytes, int(o.Stream.MaxBytes))
	}
}

// readers adds the projection and the subscribers.
func (v *values) readers(r health.Report) {
	v.number(projectionLag, r.Projection.Waiting)
	v.seconds(projectionLagSeconds, time.Duration(r.Projection.OldestWaitingMS)*time.Millisecond)
	for _, s := range r.SubscriberStates {
		v.number(subscriberParked, s.Parked, s.Name)
	}
	v.number(subscribersLeftOut, r.SubscribersTotal-len(r.Subscribers))
	for _, s := range r.Subscribers {
		v.number(subscriberLag, int(s.Lag), s.Name)
		v.seconds(subscriberLagSeconds, time.Duration(s.Age)*time.Millisecond, s.Name)
	}
}
