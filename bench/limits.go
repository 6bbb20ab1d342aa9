package main

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// limitsMeasure measures the drain of kinds with limits next to a plain kind. A limit of 100 lets 100 tasks run, so the
// plain kind has 100 slots too. With 1,000 slots, the limit takes away nine tenths of them.
func limitsMeasure() measure {
	const tasks = 60_000
	drain := func(system, slots string, limit func(context.Context, *trial) error) contender {
		return contender{system: system, setting: "slots", tune: []string{slots},
			run: func(ctx context.Context, t *trial) error {
				return drainLimited(ctx, t, t.size(tasks, tasks), limit)
			}}
	}
	return measure{
		name: "limits", notQuick: true, alternating: true,
		title: "60,000 tasks, a handler that does nothing, 100 slots; without and with limits that apply to the kind",
		contenders: []contender{
			drain(ours, "100", nil),
			drain(oursLimited, "100", limitTo100),
			drain(oursNamed, "100", limitNamed),
			drain(oursRated, "100", limitRate),
			drain(oursWide, "1000", nil),
			drain(oursWideLimited, "1000", limitTo100),
		},
	}
}

func limitTo100(ctx context.Context, t *trial) error {
	return setLimit(ctx, t, ledger.StartLimit{Name: string(kind.Name()), MaxRunning: new(100)})
}

func limitNamed(ctx context.Context, t *trial) error {
	return setLimit(ctx, t, ledger.StartLimit{
		Name: "partner-x", MaxRunning: new(100), Kinds: map[ledger.Kind]int{kind.Name(): 1, "bench.other": 1}})
}

// limitRate sets a rate that no system here reaches, so that its cost is measured.
func limitRate(ctx context.Context, t *trial) error {
	return setLimit(ctx, t, ledger.StartLimit{
		Name: string(kind.Name()), Rate: &ledger.StartRate{Starts: 100_000, Period: time.Second}})
}

func setLimit(ctx context.Context, t *trial, l ledger.StartLimit) error {
	if l.Kinds == nil {
		l.Kinds = map[ledger.Kind]int{kind.Name(): 1}
	}
	return ledger.SetStartLimit(ctx, t.db, l, "bench")
}

// drainLimited is drainOurs of a relayed backlog, with a limit unless it is nil.
func drainLimited(ctx context.Context, t *trial, tasks int, limit func(context.Context, *trial) error) error {
	return drainOurs(ctx, t, tasks, noopAtLeastOnce, afterRelay, limit)
}
