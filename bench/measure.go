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
	ours           = "taskledger"
	oursPlain      = "taskledger, Enqueue and Commit"
	oursFromCommit = "taskledger, relay included"
	oursTogether   = "taskledger, Together"
	peerRiver      = "river"
	peerWatermill  = "watermill"
	peerSkipLocked = "skip-locked"
	floorPgbench   = "pgbench"
	floorJetStream = "jetstream"
)

// measure is one question, which several systems answer in turn.
type measure struct {
	name       string
	title      string
	once       bool // one round is enough
	onceQuick  bool // with -quick
	contenders []contender
}

// quickHalf is when a run with -quick goes over to one round a measure, so that it keeps to its
// four minutes on slower machines too.
const quickHalf = 100 * time.Second

// rounds is how many turns each contender has.
func (m measure) rounds(c config, spent time.Duration) int {
	if m.once || c.quick && c.rounds == 0 && (m.onceQuick || spent > quickHalf) {
		return 1
	}
	return c.turns()
}

// contender is a system in a measure, or ours under a condition.
type contender struct {
	system string
	// tune, if given, are settings to choose from: each is tried once, on a fifth of the size,
	// and the best takes part; with -quick it is the first. They go by the name of setting.
	setting string
	tune    []string
	// open, if given, prepares a trial that lives through all rounds.
	open func(ctx context.Context, t *trial) error
	run  func(ctx context.Context, t *trial) error
}

// measures are all there are, in the order in which they are taken.
func measures() []measure {
	return slices.Concat(
		enqueueMeasures(),
		[]measure{bulkMeasure(), relayMeasure(), relaySyncedMeasure(), drainMeasure(), exactlyOnceMeasure()},
		latencyMeasures(),
		[]measure{costMeasure(), growthMeasure(), stallMeasure(), memoryMeasure(), scaleMeasure(), timersMeasure()},
	)
}

func names() []string {
	var names []string
	for _, m := range measures() {
		names = append(names, m.name)
	}
	return names
}

// measureAll takes the measures that were asked for. With an error it returns what it has.
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
	chosen := slices.DeleteFunc(measures(), func(m measure) bool { return len(c.only) > 0 && !slices.Contains(c.only, m.name) })
	for _, m := range chosen {
		for _, x := range m.contenders {
			p.expect(m.rounds(c, 0))
			if !x.stated(c) {
				p.expect(len(x.tune))
			}
		}
	}
	if err := warm(ctx, server); err != nil {
		return r, err
	}
	for _, m := range chosen {
		if err := take(ctx, c, m, server, r, p); err != nil {
			return r, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	p.done()
	r.finish()
	return r, nil
}

// warm has the server make its WAL files, which the first trials would pay for.
func warm(ctx context.Context, s *databaseServer) error {
	name, address, err := s.create(ctx)
	if err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, address)
	if err != nil {
		return errors.Join(err, s.drop(ctx, name))
	}
	_, err = db.Exec(ctx, "create table filler as select repeat(md5(i::text), 20) as line from generate_series(1, 500000) i")
	if err == nil {
		err = s.calm(ctx)
	}
	return errors.Join(err, db.Close(context.WithoutCancel(ctx)), s.drop(ctx, name))
}

// take lets every contender have its turns: A B C, A B C, …
func take(ctx context.Context, c config, m measure, s *databaseServer, r *report, p *progress) (err error) {
	trials := make([]*trial, len(m.contenders)) // those that live through all rounds
	tuned := make([]string, len(m.contenders))
	for i, x := range m.contenders {
		if tuned[i], err = tune(ctx, c, m, x, s, p); err != nil {
			return fmt.Errorf("%s: %w", x.system, err)
		}
		if tuned[i] != "" {
			r.tuned(m.name, x, tuned[i])
		}
		if x.open == nil {
			continue
		}
		p.tell(fmt.Sprintf("%s: preparing %s", m.name, x.system))
		trials[i] = &trial{config: c, server: s}
		defer func() { err = errors.Join(err, trials[i].strike()) }()
		if err := trials[i].raise(ctx); err != nil {
			return err
		}
		if err := x.open(ctx, trials[i]); err != nil {
			return fmt.Errorf("%s: %w", x.system, err)
		}
	}
	rounds := m.rounds(c, time.Since(r.Began))
	p.expect((rounds - m.rounds(c, 0)) * len(m.contenders))
	for round := range rounds {
		for i, x := range m.contenders {
			p.begin(fmt.Sprintf("%s, round %d: %s", m.name, round+1, x.system))
			var figures []figure
			if t := trials[i]; t != nil {
				t.figures = nil
				err = x.run(ctx, t)
				figures = t.figures
			} else {
				figures, err = turn(ctx, &trial{config: c, server: s, tuning: tuned[i]}, x)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", x.system, err)
			}
			r.record(m, x.system, round+1, figures)
		}
	}
	return nil
}

// stated says that there is nothing to choose.
func (x contender) stated(c config) bool { return len(x.tune) <= 1 || c.quick && !c.tuned }

// tune tries a contender's settings and returns the best.
func tune(ctx context.Context, c config, m measure, x contender, s *databaseServer, p *progress) (string, error) {
	if len(x.tune) > 0 && x.stated(c) {
		return x.tune[0], nil
	}
	var best string
	var record float64
	for _, candidate := range x.tune {
		p.begin(fmt.Sprintf("%s, tuning %s: %s %s", m.name, x.system, x.setting, candidate))
		figures, err := turn(ctx, &trial{config: c, server: s, tuning: candidate, trying: true}, x)
		if err != nil {
			return "", err
		}
		i := slices.IndexFunc(figures, func(f figure) bool { return f.metric == rate || f.metric == p50 })
		if i < 0 {
			return "", errors.New("nothing to tune by")
		}
		if merit := figures[i].merit(); best == "" || merit > record {
			best, record = candidate, merit
		}
	}
	return best, nil
}

// merit is the more the better.
func (f figure) merit() float64 {
	if lessIsBetter(f.unit) {
		return -f.value
	}
	return f.value
}

func lessIsBetter(unit string) bool { return !strings.HasSuffix(unit, "/s") }

// turn runs one trial and cleans up behind it.
func turn(ctx context.Context, t *trial, x contender) (_ []figure, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { err = errors.Join(err, t.strike()) }()
	if err := t.raise(ctx); err != nil {
		return nil, err
	}
	if err := x.run(ctx, t); err != nil {
		return nil, err
	}
	return t.figures, nil
}
