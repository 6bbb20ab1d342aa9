package slots_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/workers/internal/slots"
)

// The item of the lowest level runs first. Each 16th is the one that has waited longest, while several levels wait.
func TestLevels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []int
		var p slots.Pool[int]
		line := slots.NewLine[int](0)
		p.Start(func(i int) { got = append(got, i) })
		p.OrderBy(func(i int) int { return i / 100 })
		var want []int
		for _, first := range []int{300, 200, 0} { // the higher levels first
			for i := range 20 {
				p.Add(line, time.Now(), first+i)
				want = append(want, first+i)
				time.Sleep(time.Millisecond)
			}
		}
		slices.Sort(want)
		for turn, item := range []int{300, 301} {
			i := slices.Index(want, item)
			want = slices.Insert(slices.Delete(want, i, i+1), 16*(turn+1)-1, item)
		}
		if next, _ := p.Peek(line); next != 0 {
			t.Errorf("the next item is %d", next)
		}
		late := p.TakeOlder(line, time.Now().Add(-2*time.Hour))
		if n := p.Ready(line); n != 60 || len(late) > 0 {
			t.Errorf("%d items wait, %d were taken", n, len(late))
		}
		p.SetLineSlots(line, 1)
		synctest.Wait()
		if diff := difference.Of(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// Items that have waited too long are taken from all levels, except as many of the first as may run.
func TestTakeOlderOfLevels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p slots.Pool[int]
		line := slots.NewLine[int](0)
		p.Start(func(int) {})
		p.OrderBy(func(i int) int { return i / 100 })
		p.Add(line, time.Now(), 300, 301, 100, 101)
		time.Sleep(time.Minute)
		p.Add(line, time.Now(), 102)
		p.Stop()
		p.SetLineSlots(line, 1)
		if diff := difference.Of([]int{101, 300, 301}, p.TakeOlder(line, time.Now())); diff != "" {
			t.Error(diff)
		}
		if diff := difference.Of([]int{100, 102}, p.Drain(line)); diff != "" {
			t.Error(diff)
		}
	})
}
