package workers_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// answer is a partner's answer, as far as the caller uses it.
type answer struct {
	status     int
	retryAfter time.Duration
}

// ask asks the partner.
func ask(context.Context, coupon) (answer, error) { return answer{status: 200}, nil }

// A handler returns an error that decides how its task continues.
func ExampleRetryIn() {
	handler := func(ctx context.Context, job *workers.Job, c coupon) error {
		a, err := ask(ctx, c)
		switch {
		case err != nil:
			return err // tried again by the kind's policy
		case a.status == 429:
			return workers.RetryIn(a.retryAfter, fmt.Errorf("partner: too many requests"))
		case a.status == 202:
			return workers.SnoozeFor(time.Minute) // not a failure
		case a.status == 410:
			return workers.Discard("the order was withdrawn")
		case a.status >= 400:
			return workers.Permanent(fmt.Errorf("partner: status %d", a.status))
		}
		return nil
	}
	var p *workers.Pool // from workers.New
	err := p.Register(workers.Handle(couponSend, handler, &workers.KindConfig{
		Retry: ledger.RetryPolicy{Ladder: []time.Duration{time.Minute, 5 * time.Minute, 20 * time.Minute}},
	}))
	if err != nil {
		log.Fatal(err)
	}
}
