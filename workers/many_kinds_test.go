package workers_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

var manyKinds = flag.Int("kinds", 500, "kinds that TestManyKinds registers")

// A pool with very many kinds, of which a few have tasks at a time, starts and stops, and the others cost next to
// nothing.
func TestManyKinds(t *testing.T) {
	needMessages(t)
	b := setup(t)
	b.Relay()
	kinds := make([]ledger.TypedKind[orderArgs], *manyKinds)
	for i := range kinds {
		kinds[i] = ledger.MustKind[orderArgs](ledger.Kind(fmt.Sprintf("test.many.%05d", i)))
	}
	enqueue := func(k ledger.TypedKind[orderArgs], id string) {
		t.Helper()
		try(k.Enqueue(b.Context(), b.DB, ledger.BizID(id), orderArgs{}, nil))(t)
	}
	register := func(p *workers.Pool) error {
		for _, k := range kinds {
			err := workers.RegisterAtLeastOnce(p, k,
				func(ctx context.Context, job *workers.Job, args orderArgs) error { return b.outside(ctx, job, args) },
				nil)
			if err != nil {
				return err
			}
		}
		return nil
	}
	enqueue(kinds[0], "before")
	goroutines, memory := runtime.NumGoroutine(), memoryInUse()
	own, _ := spent(t)
	begun := time.Now()
	w := b.Work(workers.Config{AckWait: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)}, register)
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		n := try(b.JS.Stream(b.Context(), stream.Name))(t).CachedInfo().State.Consumers
		if n == 2*len(kinds) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d consumers, want %d", n, 2*len(kinds))
		}
	}
	b.AwaitSucceeded(1)
	ownStarted, _ := spent(t)
	perKind := float64(runtime.NumGoroutine()-goroutines) / float64(len(kinds))
	bytes := float64(memoryInUse()-memory) / float64(len(kinds))
	t.Logf("%d kinds: begun after %.1f s (%.1f CPU s), %.1f goroutines and %.1f KiB a kind, the broker's included",
		len(kinds), time.Since(begun).Seconds(), (ownStarted - own).Seconds(), perKind, bytes/1024)
	if perKind > 14 || bytes > 200<<10 {
		t.Errorf("%.1f goroutines and %.0f bytes a kind", perKind, bytes)
	}

	for i := range 20 {
		enqueue(kinds[i*len(kinds)/20], fmt.Sprint("after-", i))
	}
	b.AwaitSucceeded(21)
	b.WantOneEffectEach(21)
	if *manyKinds > 500 {
		idleOwn, idleServers := spent(t)
		time.Sleep(10 * time.Second)
		own, servers := spent(t)
		t.Logf("idle: %.1f %% of a CPU here, %.1f %% in PostgreSQL",
			(own-idleOwn).Seconds()*10, (servers-idleServers).Seconds()*10)
	}
	begun = time.Now()
	w.Stop()
	t.Logf("stopped after %.1f s", time.Since(begun).Seconds())
}

func memoryInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A worker that needs more consumers than the stream allows returns an error with the cure.
func TestTooManyConsumers(t *testing.T) {
	t.Parallel()
	needMessages(t)
	b := setup(t)
	s := try(b.JS.Stream(b.Context(), stream.Name))(t)
	config := s.CachedInfo().Config
	config.MaxConsumers = 1
	try(b.JS.UpdateStream(b.Context(), config))(t)
	p := try(workers.New(workers.Config{DB: b.DB, NATS: b.NC}))(t)
	if err := exactly(insertEffect, nil)(p); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(b.Context()); err == nil || !strings.Contains(err.Error(), "--max-consumers") {
		t.Errorf("Run: %v", err)
	}
}
