package workers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// Tasks of several lines and two kinds run on two workers: each line in its order and one task at a
// time, and lines run next to each other. The dispatcher is replaced meanwhile.
func TestLinesRunInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop := b.Dispatch()
	b.Dispatch()
	const keys, depth = 6, 8
	var mu sync.Mutex
	running, ended := map[string]bool{}, map[string]int{}
	handle := func(_ context.Context, job *workers.Job, _ orderArgs) error {
		var line string
		var n int
		if _, err := fmt.Sscanf(string(job.Key.BizID), "%1s-%d", &line, &n); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if running[line] || ended[line] != n {
			t.Errorf("%s begins after %d, and another one is running: %t", job.Key, ended[line], running[line])
		}
		running[line] = true
		mu.Unlock()
		time.Sleep(2 * time.Millisecond) // so that a second one at once would be noticed
		mu.Lock()
		running[line] = false
		ended[line]++
		return nil
	}
	for range 2 {
		b.Work(workers.Config{LeaseTTL: leaseTTL}, func(p *workers.Pool) error {
			c := &workers.KindConfig{Slots: 10}
			return errors.Join(p.Register(workers.Handle(order, handle, c)),
				p.Register(workers.Handle(marker, handle, c)))
		})
	}
	var all []ledger.Key
	for n := range depth {
		for line := range keys {
			kind := order
			if (n+line)%2 == 1 {
				kind = marker
			}
			name := string(rune('a' + line))
			k := kind.Key(ledger.BizID(fmt.Sprintf("%s-%d", name, n)))
			all = append(all, k)
			o := &ledger.EnqueueOptions{OrderKey: "line/" + name}
			try(ledger.Enqueue(t.Context(), b.DB, k, []byte(`{}`), o))(t)
		}
	}
	b.AwaitState(all[len(all)/2], ledger.StateSucceeded)
	stop()
	for _, k := range all {
		b.AwaitState(k, ledger.StateSucceeded)
	}
	ledgertest.Check(t, b.DB)
}
