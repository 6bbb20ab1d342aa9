package projector

import (
	"fmt"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
)

func TestKnown(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_790_000_000_123_456).UTC()
	task := func(i int) ledger.Task {
		return ledger.Task{
			Key:   ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(i))},
			State: ledger.StateAvailable, Version: 1, UpdatedAt: at,
		}
	}
	var k known
	for _, address := range []string{"(0,1)", "(4294967295,65535)"} {
		k.add(task(1), address)
		got, found, ok := k.take(task(1).Key)
		if !ok || got != address {
			t.Errorf("at %q, %t, want %q", got, ok, address)
		}
		if diff := difference.Of(task(1), found); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
		if _, _, ok := k.take(task(1).Key); ok {
			t.Error("the row is still known")
		}
	}

	running, released := task(1), task(1)
	running.State = ledger.StateRunning
	released.Version = 3
	for _, other := range []ledger.Task{running, released} {
		k.add(other, "(0,1)")
	}
	k.add(task(1), "address")
	if _, _, ok := k.take(task(1).Key); ok {
		t.Error("a row is known that differs from one that an enqueued event makes")
	}

	k.add(task(1), "(0,1)")
	k.forget(task(1).Key)
	k.add(task(2), "(0,2)")
	k.clear()
	for i := range 2 {
		if _, _, ok := k.take(task(i + 1).Key); ok {
			t.Errorf("task %d is known", i+1)
		}
	}

	const n = 5 * maxKnown / 2
	for i := range n {
		k.add(task(i), "(0,1)")
	}
	if have := len(k.recent) + len(k.earlier); have > 2*maxKnown {
		t.Errorf("%d rows are known, want at most %d", have, 2*maxKnown)
	}
	for i, want := range map[int]bool{0: false, n - maxKnown: true, n - 1: true} {
		if _, _, ok := k.take(task(i).Key); ok != want {
			t.Errorf("row %d of %d is known: %t", i, n, ok)
		}
	}
}
