package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
)

// injection is a fault that was done.
type injection struct {
	fault  fault
	target string
	began  time.Time
	cured  time.Time
}

func (d injection) String() string {
	return fmt.Sprintf("%s %-14s %-22s %.1f s", d.began.Format("15:04:05.000"), d.fault.name, d.target,
		d.cured.Sub(d.began).Seconds())
}

// nemesis does faults.
type nemesis struct {
	stage  *stage
	faults []fault
	random *rand.Rand
	log    io.Writer

	mu      sync.Mutex
	deeds   []injection
	skipped map[string]bool
	busy    map[string]bool // what faults act on now
	bag     []fault         // faults to draw before any is drawn again
}

// cureTimeout bounds a begin or a cure.
const cureTimeout = time.Minute

// run does faults until ctx is done, then cures and returns. Sometimes two faults act at once, on different targets.
func (n *nemesis) run(ctx context.Context) error {
	var group sync.WaitGroup
	errs := make(chan error, 1)
	for ctx.Err() == nil && len(errs) == 0 {
		f, seed, ok := n.draw()
		if ok {
			group.Go(func() {
				if err := n.do(ctx, f, seed); err != nil {
					select {
					case errs <- fmt.Errorf("fault %s: %w", f.name, err):
					default:
					}
				}
			})
		}
		pause := time.Duration(100+n.random.IntN(1200)) * time.Millisecond
		if n.random.IntN(3) > 0 {
			group.Wait()
		}
		_ = loop.Sleep(ctx, pause)
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// draw draws a fault. All faults are drawn before one is drawn again. It returns false if another fault acts on the
// same target now.
func (n *nemesis) draw() (fault, *rand.Rand, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.bag) == 0 {
		for _, i := range n.random.Perm(len(n.faults)) {
			n.bag = append(n.bag, n.faults[i])
		}
	}
	f := n.bag[0]
	seed := rand.New(rand.NewPCG(n.random.Uint64(), 0))
	if n.busy[f.on] {
		return f, seed, false
	}
	n.bag, n.busy[f.on] = n.bag[1:], true
	return f, seed, true
}

// do begins a fault, waits and cures it.
func (n *nemesis) do(ctx context.Context, f fault, random *rand.Rand) error {
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.busy[f.on] = false
	}()
	d := injection{fault: f, began: time.Now()}
	hold := f.least + time.Duration(random.Int64N(int64(f.most-f.least)+1))
	begun, release := context.WithCancel(context.WithoutCancel(ctx)) // for the fault's actions until its cure
	defer release()
	a, err := n.begin(begun, f, random)
	if errors.Is(err, errSkipped) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.skipped[f.name] = true
		return nil
	}
	if err == nil {
		_ = loop.Sleep(ctx, hold)
	}
	if a.cure != nil {
		cure, cancel := context.WithTimeout(context.WithoutCancel(ctx), cureTimeout)
		defer cancel()
		err = errors.Join(err, a.cure(cure))
	}
	d.target, d.cured = a.target, time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deeds = append(n.deeds, d)
	_, _ = fmt.Fprintln(n.log, d)
	return err
}

// begin begins a fault. It retries if the stage has not recovered from the fault before.
func (n *nemesis) begin(ctx context.Context, f fault, random *rand.Rand) (a act, err error) {
	for deadline := time.Now().Add(cureTimeout); ; {
		a, err = f.begin(ctx, n.stage, random)
		if err == nil || errors.Is(err, errSkipped) || a.cure != nil || time.Now().After(deadline) {
			return a, err
		}
		_ = loop.Sleep(ctx, 500*time.Millisecond)
	}
}
