package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// In an overload each task takes overloadMillis. So the workers do overloadCapacity tasks a second, and the producers
// enqueue three times as many.
const (
	overloadMillis   = 400
	overloadSlots    = 8 // of each worker
	overloadCapacity = 3 * overloadSlots * 1000 / overloadMillis
	overloadWaiting  = 500 // the limit of the kind
)

// startLimits are the limits of starts. The kind again has one of its own and shares one with the kind never.
var startLimits = []ledger.StartLimit{
	{Name: string(again.Name()), Kinds: map[ledger.Kind]int{again.Name(): 1}, MaxRunning: new(2)},
	{Name: "partner-x", Kinds: map[ledger.Kind]int{again.Name(): 1, never.Name(): 1}, MaxRunning: new(8)},
	{Name: "outside-rate", Kinds: map[ledger.Kind]int{outside.Name(): 1},
		Rate: &ledger.StartRate{Starts: 16, Period: time.Second, Burst: 4}}, // about twice the rate of the producers
}

// limitStarts sets limits of starts, so that permits and tokens are lost with workers and databases.
func (s *stage) limitStarts(ctx context.Context) error {
	conn, err := s.db.connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, l := range startLimits {
		if err := ledger.SetStartLimit(ctx, conn, l, "torture"); err != nil {
			return err
		}
	}
	return nil
}

// setLimit sets the limit of the run.
func (s *stage) setLimit(ctx context.Context) error {
	conn, err := s.db.connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	l := ledger.Limit{Kind: once.Name(), MaxWaiting: overloadWaiting, Policy: ledger.OverloadPolicy(s.overload)}
	return ledger.SetLimit(ctx, conn, l, "torture")
}

// enqueueFunc enqueues a task in a transaction.
type enqueueFunc func(context.Context, pgx.Tx, order) error

// enqueueOnly leaves all tasks to the workers.
func enqueueOnly(ctx context.Context, tx pgx.Tx, o order) error {
	_, err := o.kind.Enqueue(ctx, tx, o.id, o.args, o.options)
	return err
}

// enqueueOrRun returns a function that runs tasks itself, where the limit of the kind has this policy.
func (p *part) enqueueOrRun() (enqueueFunc, error) {
	caller, err := workers.NewCaller(once, workers.Handle(once, p.write, nil), nil)
	return func(ctx context.Context, tx pgx.Tx, o order) error {
		_, err := caller.Enqueue(ctx, tx, o.id, o.args, o.options)
		return err
	}, err
}

// watchWaiting returns how many tasks of the kind with the limit were waiting at most, as the projector has counted
// them, until ctx is done.
func (s *stage) watchWaiting(ctx context.Context) (most int) {
	for loop.Sleep(ctx, 200*time.Millisecond) == nil {
		most = max(most, s.countWaiting(ctx))
	}
	return most
}

// countWaiting returns 0 if the database does not answer.
func (s *stage) countWaiting(ctx context.Context) (n int) {
	conn, err := s.db.connect(ctx, database)
	if err != nil {
		return 0
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, "select waiting from taskledger.overload").Scan(&n); err != nil {
		return 0
	}
	return n
}

// memory returns the greatest resident memory of each process, on Linux.
func (s *stage) memory(ctx context.Context) (lines []string) {
	for _, p := range append(append([]*process(nil), s.parts...), s.nodes...) {
		if kib := readMemory(p.cmd.Process.Pid); kib != "" {
			lines = append(lines, fmt.Sprintf("memory of %s: at most %s", p, kib))
		}
	}
	conn, err := s.db.connect(ctx, database)
	if err != nil {
		return append(lines, err.Error())
	}
	defer conn.Close(ctx)
	var size string
	const sql = `select count(*) || ' sessions, ' || pg_size_pretty(pg_database_size(current_database()))
		from pg_stat_activity`
	if err := conn.QueryRow(ctx, sql).Scan(&size); err != nil {
		return append(lines, err.Error())
	}
	return append(lines, "PostgreSQL: "+size)
}

func readMemory(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
