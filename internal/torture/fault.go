package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// fault is something that happens to the stage.
type fault struct {
	name string
	what string
	// on is the target of the fault. Two simultaneous faults have different targets.
	on string
	// least and most are the bounds of the time until the cure.
	least, most time.Duration
	// cost lists possible losses by the fault, besides time.
	cost cost
	// begin starts the fault. The error errSkipped means that the machine cannot do it.
	begin func(ctx context.Context, s *stage, random *rand.Rand) (act, error)
}

// cost is a set of losses.
type cost int

const (
	// losesSubscriptions: messages that wait for a subscriber are gone, which reads the ledger instead.
	losesSubscriptions cost = 1 << iota
	// losesCommits: PostgreSQL itself loses acknowledged commits.
	losesCommits
)

// act is a fault that has begun.
type act struct {
	target string
	cure   func(context.Context) error // nil: nothing is left to cure
}

var errSkipped = errors.New("skipped")

// faults are all faults, grouped by their targets.
var faults = concat(processFaults, networkFaults, databaseFaults, restoreFaults, streamFaults,
	talkFaults, diskFaults)

func concat(lists ...[]fault) (all []fault) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// one draws an element.
func one[T any](random *rand.Rand, all []T) T { return all[random.IntN(len(all))] }

// repeat calls f at intervals until the returned cure is called.
func repeat(ctx context.Context, every time.Duration, f func(context.Context)) func(context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			f(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	}()
	return func(context.Context) error {
		cancel()
		<-ended
		return nil
	}
}
