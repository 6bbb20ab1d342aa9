package projector_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// roundTrips counts the round trips of a pool whose statements are prepared.
type roundTrips struct{ n int }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.n++
	return ctx
}

func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.n++
	return ctx
}

func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A page takes few round trips: each one waits for a turn of a busy processor.
func TestRoundTripsOfAPage(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	trips := &roundTrips{}
	p, err := projector.New(projector.Config{DB: traced(t, pool, trips)})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := feed.Open(t.Context(), pool, feed.ProjectorReader, nil)
	if err != nil {
		t.Fatal(err)
	}
	measure := func(do func(first int)) (n int) {
		t.Helper()
		for i := range 2 { // the statements are prepared the first time
			do(100 * i)
			page, ok, err := reader.Poll(t.Context())
			if err != nil || !ok {
				t.Fatalf("%t, %v", ok, err)
			}
			trips.n = 0
			if err := projector.ApplyPage(t.Context(), p, page); err != nil {
				t.Fatal(err)
			}
			n = trips.n
		}
		return n
	}
	key := func(i int) ledger.Key { return ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(strconv.Itoa(i))} }
	have := map[string]int{}
	have["enqueued"] = measure(func(first int) {
		for i := range 3 {
			meta := ledger.Meta{Tags: []string{"customer-17"}}
			if _, err := ledger.Enqueue(t.Context(), pool, key(first+i), nil,
				&ledger.EnqueueOptions{Meta: meta}); err != nil {
				t.Fatal(err)
			}
		}
	})
	have["finished"] = measure(func(first int) {
		for i := range 3 {
			if _, err := ledger.Append(t.Context(), pool, ledger.AppendRequest{Key: key(first + i), Expected: 1,
				Type: ledger.EventSucceeded}); err != nil {
				t.Fatal(err)
			}
		}
	})
	// Begin, the cursor, all writes, and the commit; and the rows before.
	if have["enqueued"] != 4 || have["finished"] != 5 {
		t.Errorf("round trips: %v, want 4 of a page of new tasks, 5 of a page of known ones", have)
	}
	check(t, pool)
}
