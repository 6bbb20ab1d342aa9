package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed ended.sql
var endedSQL string

const (
	// defaultRate is a rate that a machine with two cores sustains during the faults.
	defaultRate = 40
	// maxReplicationDelay is how long before a promotion an asynchronous standby may have stood still.
	maxReplicationDelay = 15 * time.Second
)

// config configures a run.
type config struct {
	duration  time.Duration
	seed      uint64
	faults    string
	rate      int
	patience  time.Duration // until all tasks have ended, after the last cure
	pgbouncer string
	overload  string
	keep      string
	maxStep   time.Duration // of PostgreSQL's clock; default: 2 minutes; tasks may be due as much later
	log       io.Writer
}

func (c *config) validate() error {
	if c.maxStep == 0 {
		c.maxStep = 2 * time.Minute
	}
	if c.seed == 0 {
		c.seed = rand.Uint64N(1_000_000)
	}
	if c.duration <= 0 || c.rate <= 0 {
		return fmt.Errorf("-duration and -rate must be above 0, got %v and %d", c.duration, c.rate)
	}
	if c.overload != "" {
		c.rate, c.faults = 3*overloadCapacity/2, "none"
		if !slices.Contains(policies, c.overload) {
			return fmt.Errorf("-overload must be one of %v, got %q", policies, c.overload)
		}
	}
	_, err := c.chosen()
	return err
}

// policies are the overload policies of a limit.
var policies = []string{string(ledger.Reject), string(ledger.Discard), string(ledger.DiscardOldest),
	string(ledger.CallerRuns)}

// chosen returns the faults of the run.
func (c *config) chosen() ([]fault, error) {
	if c.faults == "" {
		return faults, nil
	}
	var all []fault
	for name := range strings.SplitSeq(c.faults, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 && name != "none" {
			return nil, fmt.Errorf("-faults must be names that -list prints, got %q", name)
		}
		if i >= 0 {
			all = append(all, faults[i])
		}
	}
	return all, nil
}

// torture runs the product and the nemesis, and checks the result.
func torture(ctx context.Context, c config) (_ *report, err error) {
	dir := c.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "taskledger-torture-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if dir, err = filepath.Abs(dir); err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)) // PostgreSQL's user passes through it
	}
	if err != nil {
		return nil, err
	}
	s, err := newStage(ctx, c, dir)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return nil, err
	}
	chosen, err := c.chosen()
	if err != nil {
		return nil, err
	}
	n := &nemesis{stage: s, faults: chosen, random: rand.New(rand.NewPCG(c.seed, 1)), log: c.log,
		skipped: make(map[string]bool), busy: make(map[string]bool)}
	limit := s.limitStarts
	if c.overload != "" {
		limit = s.setLimit
	}
	if err := limit(ctx); err != nil {
		return nil, err
	}
	r := &report{config: c, began: time.Now()}
	running, cancel := context.WithTimeout(ctx, c.duration)
	defer cancel()
	switch {
	case c.overload != "":
		r.waiting = s.watchWaiting(running)
	case len(chosen) > 0:
		err = n.run(running)
	}
	<-running.Done()
	r.stopped = time.Now()
	for name := range n.skipped {
		s.skipped = append(s.skipped, "fault "+name+" was skipped")
	}
	if s.pooler != nil && s.pooler.restarts.Load() > 0 {
		s.skipped = append(s.skipped, fmt.Sprintf("PgBouncer ended by itself %d times", s.pooler.restarts.Load()))
	}
	r.skipped = s.skipped
	if err != nil || ctx.Err() != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return r, r.finish(ctx, s, n.deeds)
}

// finish stops the producers, waits until all tasks have ended and their events have appeared, stops the other parts
// and checks.
func (r *report) finish(ctx context.Context, s *stage, deeds []injection) error {
	if s.overload != "" {
		r.memory = append(s.memory(ctx), fmt.Sprintf("waiting tasks: at most %d of %d", r.waiting, overloadWaiting))
	}
	late, err := s.stopParts("producer")
	if err != nil {
		return err
	}
	if err := s.awaitEnd(ctx); err != nil {
		return err
	}
	r.endedAfter = time.Since(r.stopped)
	for _, c := range cast {
		more, err := s.stopParts(c.program)
		if late = append(late, more...); err != nil {
			return err
		}
	}
	entries, err := readHistories(filepath.Join(s.dir, "history"))
	if err != nil {
		return err
	}
	r.record = newRecord(entries)
	if r.config.overload == "" {
		r.record.limits = startLimits
	}
	r.record.deeds = deeds
	for _, p := range append(slices.Clone(s.parts), s.nodes...) {
		r.record.ended = append(r.record.ended, p.faults...)
	}
	for _, name := range late {
		r.record.ended = append(r.record.ended, name+" did not end 30 s after SIGTERM")
	}
	conn, err := s.db.connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := r.record.readDatabase(ctx, conn); err != nil {
		return err
	}
	r.violations = check(r.record)
	return nil
}

// awaitEnd waits until every task has ended, and every event has passed relay, projector and subscriber. If patience
// ends first, the checker finds the missing ones.
func (s *stage) awaitEnd(ctx context.Context) error {
	for deadline := time.Now().Add(s.patience); time.Now().Before(deadline); {
		if ok, err := s.db.is(ctx, endedSQL); err == nil && ok && s.hasReceivedAll(ctx) {
			return nil
		}
		if err := loop.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// hasReceivedAll reports whether the subscriber has acknowledged every message.
func (s *stage) hasReceivedAll(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := s.js.Consumer(ctx, stream.Name, natsconfig.Subscriber)
	return err == nil && c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0
}
