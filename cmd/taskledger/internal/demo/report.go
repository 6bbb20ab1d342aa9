package demo

import (
	"context"
	_ "embed"
	"fmt"
	"math"

	"github.com/taskledger/taskledger/projector"
)

var (
	//go:embed sql/proof.sql
	proofSQL string
	//go:embed sql/latency.sql
	latencySQL string
)

// Report is the outcome of a run. Its numbers come from the tables of the shop and of the ledger.
type Report struct {
	OrdersCommitted  int64    `json:"orders_committed"`
	OrdersRolledBack int64    `json:"orders_rolled_back"`
	EnqueuedTwice    int64    `json:"enqueued_twice"`
	Tasks            int64    `json:"tasks"`
	Succeeded        int64    `json:"succeeded"`
	Coupons          int64    `json:"coupons"`
	Retried          int64    `json:"retried"`     // tasks that failed twice and succeeded at the third attempt
	Dead             int64    `json:"dead"`        // tasks that failed three times, as intended
	Lost             int64    `json:"lost"`        // orders with neither a coupon nor a dead task
	Doubled          int64    `json:"doubled"`     // orders with more than one
	Ghosts           int64    `json:"ghosts"`      // coupons and tasks without a committed order
	Firings          int64    `json:"firings"`     // of the periodic task, one per second
	TillCounts       int64    `json:"till_counts"` // effects of the periodic task
	TakenOver        int64    `json:"taken_over"`
	Fenced           int64    `json:"fenced"`
	Kills            int64    `json:"kills"`
	StreamWipes      int64    `json:"stream_wipes"`
	StreamLosses     int64    `json:"stream_losses"` // times that the relay found messages missing from the stream
	Events           int64    `json:"events"`
	P50              float64  `json:"p50_ms"` // from enqueue to success, of all tasks without a failure
	P99              float64  `json:"p99_ms"`
	P50Calm          float64  `json:"p50_calm_ms"` // of tasks outside every trouble
	P99Calm          float64  `json:"p99_calm_ms"`
	ProjectionEqual  bool     `json:"projection_equal"` // whether the fold of all events equals the task table
	Seconds          float64  `json:"seconds"`
	Troubles         []string `json:"troubles"`
	Failures         []string `json:"failures"` // promises that do not hold; empty if OK
	OK               bool     `json:"ok"`
}

// prove reads the report from the database and checks it.
func (d *demo) prove(ctx context.Context) (Report, error) {
	r := Report{
		OrdersRolledBack: d.shop.rolledBack.Load(), EnqueuedTwice: d.shop.duplicates.Load(),
		TakenOver: d.counters.takenOver.Load(), Fenced: d.counters.fenced.Load(), StreamLosses: d.counters.lost.Load(),
		Kills: d.children.kills.Load(), StreamWipes: d.wipes.Load(),
		Troubles: d.troubles.list(), Failures: []string{},
	}
	err := d.db.QueryRow(ctx, proofSQL, flakyRefusals, retryPolicy.Limit()).Scan(&r.OrdersCommitted, &r.Tasks,
		&r.Succeeded, &r.Coupons, &r.Lost, &r.Doubled, &r.Ghosts, &r.Events, &r.Retried, &r.Dead)
	if err != nil {
		return r, fmt.Errorf("proof: %w", err)
	}
	begins, ends := d.troubles.arrays()
	if err := d.db.QueryRow(ctx, latencySQL, begins, ends).Scan(&r.P50, &r.P99, &r.P50Calm, &r.P99Calm); err != nil {
		return r, fmt.Errorf("latency: %w", err)
	}
	for _, figure := range []*float64{&r.P50, &r.P99, &r.P50Calm, &r.P99Calm} {
		*figure = tenths(*figure)
	}
	verified, err := projector.Verify(ctx, d.db, nil)
	if err != nil {
		return r, fmt.Errorf("verify the projection: %w", err)
	}
	r.ProjectionEqual = verified.Equal() && verified.Events == r.Events
	if err := d.proveTill(ctx, &r); err != nil {
		return r, err
	}
	r.check(d.shop, d.config.Chaos)
	return r, nil
}

// tenths rounds a figure to one decimal, its precision.
func tenths(f float64) float64 { return math.Round(f*10) / 10 }

// check sets Failures and OK.
func (r *Report) check(s *shop, chaos bool) {
	orders, flaky, poison := int64(s.orders), s.refused(flakyRefusals), s.refused(poisonRefusals)
	must := func(holds bool, format string, args ...any) {
		if !holds {
			r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
		}
	}
	must(r.OrdersCommitted == orders, "%d orders were committed, want %d", r.OrdersCommitted, orders)
	must(r.Tasks == r.OrdersCommitted, "%d tasks for %d orders", r.Tasks, r.OrdersCommitted)
	must(r.Dead == poison, "%d tasks are dead, want %d", r.Dead, poison)
	must(r.Retried == flaky, "%d tasks succeeded at the third attempt, want %d", r.Retried, flaky)
	must(r.Succeeded == r.Tasks-poison, "%d of %d tasks succeeded, want %d", r.Succeeded, r.Tasks, r.Tasks-poison)
	must(r.Coupons == r.OrdersCommitted-poison, "%d coupons for %d orders, want %d",
		r.Coupons, r.OrdersCommitted, r.OrdersCommitted-poison)
	must(r.Lost == 0, "%d orders have neither a coupon nor a dead task", r.Lost)
	must(r.Doubled == 0, "%d orders have more than one coupon", r.Doubled)
	must(r.Ghosts == 0, "%d coupons or tasks have no committed order", r.Ghosts)
	must(r.ProjectionEqual, "the projection differs from the fold of its events")
	if chaos {
		must(r.Kills == 3, "%d processes were killed, want 3", r.Kills)
		must(r.StreamWipes == 1, "JetStream was wiped %d times, want 1", r.StreamWipes)
		must(r.Fenced > 0 || !canFreeze, "no zombie was fenced off")
	}
	r.OK = len(r.Failures) == 0
}
