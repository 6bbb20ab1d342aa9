package projector_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

func TestWaitFor(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	stop := start(t, projector.Config{DB: pool})
	defer stop()
	answer, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "coupon.send", BizID: "A-1"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := projector.WaitFor(t.Context(), pool, answer.Position); err != nil {
		t.Fatal(err)
	}
	counts, err := projector.ReadCounts(t.Context(), pool, "", lists.All)
	if err != nil || len(counts) != 1 {
		t.Errorf("after the wait: %v, %v", counts, err)
	}
	stop()
	answer, err = ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: "coupon.send", BizID: "A-2"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := projector.WaitFor(ctx, pool, answer.Position); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a runner: %v", err)
	}
	if err := projector.WaitFor(t.Context(), pool, 1<<40); !errors.Is(err, ledger.ErrUnknownPosition) {
		t.Errorf("unknown position: %v", err)
	}
}
