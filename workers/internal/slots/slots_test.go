package slots_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/workers/internal/slots"
)

// Quick items do not need a goroutine each: while they run no other one begins.
func TestQuickItemsShareGoroutines(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	before := runtime.NumGoroutine()
	var mu sync.Mutex
	most := 0
	done := make(chan struct{})
	var p slots.Pool[int]
	p.Start(func(i int) {
		mu.Lock()
		most = max(most, runtime.NumGoroutine())
		mu.Unlock()
		if i == 0 {
			close(done)
		}
	})
	p.Add(slots.NewLine[int](1000), time.Now(), append(slices.Repeat([]int{1}, 999), 0)...)
	<-done
	mu.Lock()
	defer mu.Unlock()
	if most > before+10 {
		t.Errorf("%d goroutines for items that end at once, want 2", most-before)
	}
}

// Items of one line run in the order in which they were added.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []int
		var p slots.Pool[int]
		p.Start(func(i int) { got = append(got, i) })
		p.Add(slots.NewLine[int](1), time.Now(), 1, 2, 3, 4)
		synctest.Wait()
		if diff := difference.Of([]int{1, 2, 3, 4}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// No more items run at a time than the slots of a line and those over all lines allow.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		overall int
		lines   []int // slots of each line
		want    int64 // items that run at a time
	}{
		"one line":            {lines: []int{2}, want: 2},
		"two lines":           {lines: []int{2, 3}, want: 5},
		"overall limit":       {overall: 4, lines: []int{2, 3}, want: 4},
		"overall above lines": {overall: 10, lines: []int{2, 3}, want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int64
				release := make(chan struct{})
				var p slots.Pool[int]
				p.SetSlots(test.overall)
				p.Start(func(int) {
					running.Add(1)
					defer running.Add(-1)
					<-release
				})
				for _, n := range test.lines {
					p.Add(slots.NewLine[int](n), time.Now(), make([]int, 20)...)
				}
				synctest.Wait()
				if got := running.Load(); got != test.want {
					t.Errorf("%d items run, want %d", got, test.want)
				}
				close(release)
			})
		})
	}
}

// While slots over all lines are scarce, a flooded line does not delay other lines.
func TestLinesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		var p slots.Pool[string]
		p.SetSlots(1)
		p.Start(func(s string) {
			time.Sleep(time.Second)
			got = append(got, s)
		})
		p.Add(slots.NewLine[string](1), time.Now(), "flood", "flood", "flood", "flood")
		p.Add(slots.NewLine[string](1), time.Now(), "few", "few")
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := difference.Of([]string{"flood", "few", "flood", "few", "flood", "flood"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// Slots are changed while items run: additional ones are used at once.
func TestSetLineSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		release := make(chan struct{})
		var p slots.Pool[int]
		p.Start(func(int) {
			running.Add(1)
			<-release
		})
		line := slots.NewLine[int](1)
		p.Add(line, time.Now(), 1, 2, 3)
		synctest.Wait()
		p.SetLineSlots(line, 2)
		synctest.Wait()
		if got := running.Load(); got != 2 || p.LineSlots(line) != 2 || p.Ready(line) != 1 {
			t.Errorf("%d items run in %d slots, %d wait", got, p.LineSlots(line), p.Ready(line))
		}
		close(release)
	})
}

// An item that ends its goroutine frees its slot.
func TestItemThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		var p slots.Pool[int]
		p.Start(func(int) {
			count.Add(1)
			runtime.Goexit()
		})
		p.Add(slots.NewLine[int](1), time.Now(), 1, 2, 3)
		synctest.Wait()
		if got := count.Load(); got != 3 {
			t.Errorf("%d items ran, want 3", got)
		}
	})
}

// RunBeyond runs one item beyond the slots of its line, unless the slots over all lines are busy.
func TestRunBeyond(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		overall, items int
		want           bool
	}{
		"all slots busy":          {items: 2, want: true},
		"empty line":              {items: 0},
		"free slot":               {items: 1},
		"overall limit":           {overall: 1, items: 2},
		"below the overall limit": {overall: 2, items: 2, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var p slots.Pool[int]
				p.SetSlots(test.overall)
				p.Start(func(int) { <-release })
				line := slots.NewLine[int](1)
				p.Add(line, time.Now(), make([]int, test.items)...)
				synctest.Wait()
				done := p.RunBeyond(line)
				if got := done != nil; got != test.want {
					t.Errorf("RunBeyond ran an item: %t, want %t", got, test.want)
				}
				close(release)
				if done != nil {
					<-done
				}
			})
		})
	}
}

// TakeOlder returns late items, also if later ones have arrived, and Drain the items that are left in a stopped pool.
func TestTakeOlderAndDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var p slots.Pool[int]
		p.Start(func(int) { <-release })
		line := slots.NewLine[int](1)
		begin := time.Now()
		p.Add(line, begin, 0, 1, 2, 3)
		synctest.Wait() // 0 runs
		if diff := difference.Of([]int(nil), p.TakeOlder(line, begin)); diff != "" {
			t.Error(diff)
		}
		p.Add(line, begin.Add(time.Second), 4)
		if diff := difference.Of([]int{1, 2, 3}, p.TakeOlder(line, begin.Add(time.Second))); diff != "" {
			t.Error(diff)
		}
		p.Add(line, begin, 5, 6)
		if v, ok := p.Peek(line); !ok || v != 4 {
			t.Errorf("Peek returned %d, %t", v, ok)
		}
		if v, ok := p.TakeIf(line, func(i int) bool { return i == 5 }); ok {
			t.Errorf("TakeIf returned %d", v)
		}
		if v, ok := p.TakeIf(line, func(i int) bool { return i == 4 }); !ok || v != 4 {
			t.Errorf("TakeIf returned %d, %t", v, ok)
		}
		p.Stop()
		if p.Add(line, begin, 7) {
			t.Error("a stopped pool took an item")
		}
		if diff := difference.Of([]int{5, 6}, p.Drain(line)); diff != "" {
			t.Error(diff)
		}
		if _, ok := p.Peek(line); ok {
			t.Error("an item is left")
		}
		close(release)
	})
}

// A line has free slots of its own, but another line has taken all slots: its items are late too.
func TestTakeOlderWithoutAFreeSlotOverAllLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var p slots.Pool[int]
		p.SetSlots(3)
		p.Start(func(int) { <-release })
		begin := time.Now()
		hangs, other := slots.NewLine[int](2), slots.NewLine[int](5)
		p.Add(hangs, begin, 0, 1)
		synctest.Wait()
		p.Add(other, begin, 2, 3, 4)
		synctest.Wait() // 2 runs
		if n := p.Free(other); n != 0 {
			t.Errorf("%d free slots", n)
		}
		if diff := difference.Of([]int{3, 4}, p.TakeOlder(other, begin.Add(time.Second))); diff != "" {
			t.Error(diff)
		}
		p.SetSlots(5)
		if n := p.Free(other); n != 2 {
			t.Errorf("%d free slots, want 2", n)
		}
		close(release)
	})
}

// Every item of concurrent writers runs once, while slots change.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 200
	var count, running atomic.Int64
	done := make(chan struct{})
	var p slots.Pool[int]
	p.SetSlots(3)
	p.Start(func(int) {
		if running.Add(1) > 5 {
			t.Error("more than 5 items run")
		}
		runtime.Gosched()
		running.Add(-1)
		if count.Add(1) == writers*each {
			close(done)
		}
	})
	lines := []*slots.Line[int]{slots.NewLine[int](1), slots.NewLine[int](2), slots.NewLine[int](4)}
	var adding sync.WaitGroup
	for w := range writers {
		adding.Go(func() {
			for i := range each {
				p.Add(lines[(w+i)%len(lines)], time.Now(), i)
				p.SetSlots(3 + i%3)
			}
		})
	}
	adding.Wait()
	<-done
}

// BenchmarkQuickItems runs a thousand items that end at once in as many slots.
func BenchmarkQuickItems(b *testing.B) {
	const items = 1000
	var running sync.WaitGroup
	var p slots.Pool[int]
	p.Start(func(int) { running.Done() })
	line, values := slots.NewLine[int](items), make([]int, items)
	b.ReportAllocs()
	for b.Loop() {
		running.Add(items)
		p.Add(line, time.Now(), values...)
		running.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(items*b.N), "ns/item")
}
