package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Systems.
const (
	ours            = "taskledger"
	oursExec        = "taskledger, Exec"
	oursPlain       = "taskledger, Enqueue and Commit"
	oursFromCommit  = "taskledger, relay included"
	oursNoStream    = "taskledger, no stream"
	oursPriorities  = "taskledger, four priorities"
	oursBacklog     = "taskledger, 1,000,000 low ones"
	oursPartitions  = "taskledger, 1,000 partitions"
	oursNoisy       = "taskledger, 1,000,000 of another tenant"
	oursLimited     = "taskledger, limit of 100"
	oursNamed       = "taskledger, shared limit of 100"
	oursRated       = "taskledger, rate of 100,000/s"
	oursWide        = "taskledger, 1,000 slots"
	oursWideLimited = "taskledger, 1,000 slots, limit of 100"
	oursOrdered     = "taskledger, 10,000 order keys"
	oursReplace     = "taskledger, IfExistsReplace"
	oursLine        = "taskledger, line of 1,000"
	oursLongLine    = "taskledger, line of 1,000,000"
	oursTogether    = "taskledger, Together"
	oursReplicated  = "taskledger, three replicas"
	oursOneProcess  = "taskledger, one process"
	oursManyKinds   = "taskledger, 1,000 kinds"
	peerRiver       = "river"
	riverPolling    = "river, polls every 5 ms"
	peerWatermill   = "watermill"
	peerSkipLocked  = "skip-locked"
	floorPgbenchTwo = "pgbench, two round trips"
	floorPgbenchOne = "pgbench, one round trip"
	floorJetStream  = "jetstream"
	floorPipeline   = "floor"
	// floorTwoTrips is the enqueue of the floor that waits for the result of its business insert.
	floorTwoTrips = "floor, two round trips"
	// floorRare is the floor at an even rate with a greater latency budget.
	floorRare                = "floor, budget of 20 ms"
	floorJetStreamReplicated = "jetstream, three replicas"
	// floorFromStream is the drain of a backlog that waits on the stream, as ours.
	floorFromStream = "floor, backlog on the stream"
	// floorUnderWaiting is the floor with many waiting tasks.
	floorUnderWaiting = "floor, many waiting"
)

// measure is one comparison of several systems.
type measure struct {
	name      string
	title     string
	once      bool // in one round
	onceQuick bool // in one round with -quick
	notQuick  bool // with -quick only if -only names it: no ratio needs it
	// alternating measures give the first contender a turn before and after each other turn.
	alternating bool
	quickRounds int // with -quick, even late in the run. Default: the run's rounds.
	contenders  []contender
}

// quickHalf is the time after which a run with -quick has one round for each measure, so that it ends within six
// minutes.
const quickHalf = 30 * time.Second

// rounds returns the number of trials of each contender.
func (m measure) rounds(c config, spent time.Duration) int {
	if c.quick && c.rounds == 0 && m.quickRounds > 0 {
		return m.quickRounds
	}
	if m.once || c.quick && c.rounds == 0 && (m.onceQuick || spent > quickHalf) {
		return 1
	}
	return c.roundCount()
}

// contender is a system in a measure, or taskledger under a condition.
type contender struct {
	system string
	// notQuick contenders take part with -quick only if -only names the measure.
	notQuick bool
	// setting names what tune chooses.
	setting string
	// tune are the values to choose from. One trial on a fifth of the size decides. With -quick the
	// first value is used. Default: none.
	tune []string
	// open prepares one trial for all rounds. Default: a new trial for each round.
	open func(ctx context.Context, t *trial) error
	// ready waits for what open began, after all trials are open. Default: nothing.
	ready func(ctx context.Context, t *trial) error
	run   func(ctx context.Context, t *trial) error
}

// measures returns all measures, in the order of the run.
func measures() []measure {
	return slices.Concat(
		enqueueMeasures(),
		[]measure{
			bulkMeasure(), replaceMeasure(), relayMeasure(), relaySyncedMeasure(), drainMeasure(), exactlyOnceMeasure(),
		},
		everydayMeasures(),
		[]measure{
			subscribersMeasure(), subscriberMeasure(), priorityMeasure(), limitsMeasure(),
			partitionsMeasure(), tenantMeasure(), orderMeasure(), lineMeasure(), costMeasure(),
			growthMeasure(), controlMeasure(), floorGrowthMeasure(), stallMeasure(), memoryMeasure(), scaleMeasure(),
			timersMeasure(),
		},
	)
}

func names() []string {
	var names []string
	for _, m := range measures() {
		names = append(names, m.name)
	}
	return names
}

// chosen returns the measures of a run with the contenders that take part.
func (c config) chosen() []measure {
	if len(c.only) > 0 {
		return slices.DeleteFunc(measures(), func(m measure) bool { return !slices.Contains(c.only, m.name) })
	}
	all := measures()
	if !c.quick {
		return all
	}
	all = slices.DeleteFunc(all, func(m measure) bool { return m.notQuick })
	for i := range all {
		all[i].contenders = slices.DeleteFunc(all[i].contenders, func(x contender) bool { return x.notQuick })
	}
	return all
}

// measureAll runs the chosen measures. With an error it also returns the figures that it has.
func measureAll(ctx context.Context, c config, p *progress) (r *report, err error) {
	r = newReport(c)
	server, err := openServer(ctx, c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	if err := r.describe(ctx, server); err != nil {
		return r, err
	}
	chosen := c.chosen()
	for _, m := range chosen {
		p.expect(len(m.turns(m.rounds(c, 0))))
		for _, x := range m.contenders {
			if !x.isFixed(c) {
				p.expect(len(x.tune))
			}
		}
	}
	if err := warmUpServer(ctx, server); err != nil {
		return r, err
	}
	for _, m := range chosen {
		if err := runMeasure(ctx, c, m, server, r, p); err != nil {
			return r, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	p.done()
	r.finish()
	return r, nil
}

// warmUpServer makes the server create its WAL files, which would cost the first trials time.
func warmUpServer(ctx context.Context, s *databaseServer) error {
	name, address, err := s.create(ctx)
	if err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, address)
	if err != nil {
		return errors.Join(err, s.drop(ctx, name))
	}
	_, err = db.Exec(ctx, statement("filler"))
	if err == nil {
		err = s.checkpoint(ctx)
	}
	return errors.Join(err, db.Close(context.WithoutCancel(ctx)), s.drop(ctx, name))
}

// turn is one trial of one contender.
type turn struct{ round, contender int }

// turns returns the turns of a measure with these rounds: A B C, B C A, … or, if it is alternating, A B A C, A B A C, …
// and A at the end. The first turn of a measure is often the slowest, so the contenders take turns at it.
func (m measure) turns(rounds int) []turn {
	var turns []turn
	for round := range rounds {
		for i := range m.contenders {
			if m.alternating && i > 1 {
				turns = append(turns, turn{round, 0})
			}
			if !m.alternating {
				i = (i + round) % len(m.contenders)
			}
			turns = append(turns, turn{round, i})
		}
	}
	if m.alternating && len(m.contenders) > 1 {
		turns = append(turns, turn{rounds - 1, 0})
	}
	return turns
}

// runMeasure runs the trials of a measure.
func runMeasure(ctx context.Context, c config, m measure, s *databaseServer, r *report, p *progress) (err error) {
	trials := make([]*trial, len(m.contenders)) // those for all rounds
	tuned := make([]string, len(m.contenders))
	for i, x := range m.contenders {
		if tuned[i], err = tune(ctx, c, m, x, s, p); err != nil {
			return fmt.Errorf("%s: %w", x.system, err)
		}
		if tuned[i] != "" {
			r.recordTuning(m.name, x, tuned[i])
		}
		if x.open == nil {
			continue
		}
		p.note(fmt.Sprintf("%s: preparing %s", m.name, x.system))
		trials[i] = &trial{config: c, server: s}
		defer func() { err = errors.Join(err, trials[i].close()) }()
		if err := trials[i].open(ctx); err != nil {
			return err
		}
		if err := x.open(ctx, trials[i]); err != nil {
			return fmt.Errorf("%s: %w", x.system, err)
		}
	}
	for i, x := range m.contenders {
		if x.ready == nil {
			continue
		}
		if err := x.ready(ctx, trials[i]); err != nil {
			return fmt.Errorf("%s: %w", x.system, err)
		}
	}
	turns := m.turns(m.rounds(c, time.Since(r.Began)))
	p.expect(len(turns) - len(m.turns(m.rounds(c, 0))))
	for _, n := range turns {
		x := m.contenders[n.contender]
		p.begin(fmt.Sprintf("%s, round %d: %s", m.name, n.round+1, x.system))
		var figures []figure
		if t := trials[n.contender]; t != nil {
			t.figures = nil
			err = x.run(ctx, t)
			figures = t.figures
		} else {
			figures, err = runTrial(ctx, &trial{config: c, server: s, tuning: tuned[n.contender]}, x)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", x.system, err)
		}
		r.record(m, x.system, n.round+1, figures)
	}
	return nil
}

// isFixed reports whether there is nothing to choose.
func (x contender) isFixed(c config) bool { return len(x.tune) <= 1 || c.quick && !c.tuned }

// tune runs a trial with each setting of a contender and returns the best setting.
func tune(ctx context.Context, c config, m measure, x contender, s *databaseServer, p *progress) (string, error) {
	if len(x.tune) > 0 && x.isFixed(c) {
		return x.tune[0], nil
	}
	var best string
	var record float64
	for _, candidate := range x.tune {
		p.begin(fmt.Sprintf("%s, tuning %s: %s %s", m.name, x.system, x.setting, candidate))
		figures, err := runTrial(ctx, &trial{config: c, server: s, tuning: candidate, trying: true}, x)
		if err != nil {
			return "", err
		}
		i := slices.IndexFunc(figures, func(f figure) bool { return f.metric == rate || f.metric == p50 })
		if i < 0 {
			return "", errors.New("the trial has no figure to compare settings by")
		}
		if merit := figures[i].merit(); best == "" || merit > record {
			best, record = candidate, merit
		}
	}
	return best, nil
}

// merit returns a number that is greater for a better figure.
func (f figure) merit() float64 {
	if lessIsBetter(f.unit) {
		return -f.value
	}
	return f.value
}

func lessIsBetter(unit string) bool { return !strings.HasSuffix(unit, "/s") }

// runTrial runs one trial and releases its resources.
func runTrial(ctx context.Context, t *trial, x contender) (_ []figure, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	if err := x.run(ctx, t); err != nil {
		return nil, err
	}
	return t.figures, nil
}
