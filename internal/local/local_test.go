package local_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/local"
)

// Messages arrive in order, once each, however many senders there are; those to a name without a box do not.
func TestBoxes(t *testing.T) {
	t.Parallel()
	var boxes local.Boxes[int]
	if boxes.Put("a", 1) {
		t.Error("a box that was never opened has taken a message")
	}
	box, remove := boxes.Open("a")
	const senders, messages = 4, 1000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make([][]int, senders)
	arrived := 0
	var all sync.WaitGroup
	all.Go(func() {
		box.Receive(ctx, func(m int) {
			got[m/messages] = append(got[m/messages], m%messages)
			if arrived++; arrived == senders*messages {
				cancel()
			}
		})
	})
	for s := range senders {
		all.Go(func() {
			for i := range messages {
				if !boxes.Put("a", s*messages+i) {
					t.Error("the box is closed")
				}
			}
		})
	}
	all.Wait()
	for s, of := range got {
		if len(of) != messages || !slices.IsSorted(of) {
			t.Errorf("sender %d: %d messages, sorted %t", s, len(of), slices.IsSorted(of))
		}
	}
	remove()
	if boxes.Put("a", 1) {
		t.Error("a box that was removed has taken a message")
	}
}
