package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/shop.sql
	shopSQL string
	//go:embed sql/order.sql
	orderSQL string
	//go:embed sql/coupon.sql
	couponSQL string
)

// couponArgs are the args of a coupon task.
type couponArgs struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
	// Refusals is how often the shop's partner refuses the coupon.
	Refusals int `json:"refusals,omitempty"`
}

const (
	flakyRefusals  = 2    // the third attempt succeeds
	poisonRefusals = 1000 // no attempt succeeds
)

// refusals returns how often the partner refuses an order's coupon: two of a hundred twice, one of
// all always.
func (s *shop) refusals(number int) int {
	switch {
	case number == s.orders/2 && s.orders >= 10:
		return poisonRefusals
	case number%50 == 7:
		return flakyRefusals
	}
	return 0
}

// refused returns how many orders' coupons are refused this number of times.
func (s *shop) refused(refusals int) (n int64) {
	for number := range s.orders {
		if s.refusals(number) == refusals {
			n++
		}
	}
	return n
}

// couponKind is the kind of task that sends a coupon. Its biz_id is the order number.
var couponKind = ledger.MustKind[couponArgs]("coupon.send")

// shop places orders in concurrent transactions.
type shop struct {
	db     *pgxpool.Pool
	orders int           // number to commit
	pace   time.Duration // time between two orders

	placed     atomic.Int64 // committed
	rolledBack atomic.Int64
	duplicates atomic.Int64 // enqueues whose task existed
}

const customers = 8 // that order concurrently

// run places all orders and returns when the last is committed.
func (s *shop) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var group sync.WaitGroup
	for customer := range customers {
		group.Go(func() {
			for number := range numbers {
				if err := s.placeOrder(ctx, customer, number); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	tick := time.NewTicker(s.pace)
	defer tick.Stop()
	for number := 0; number < s.orders && ctx.Err() == nil; number++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		select {
		case numbers <- number:
		case <-ctx.Done():
		}
	}
	close(numbers)
	group.Wait()
	return context.Cause(ctx)
}

var errChangedMind = errors.New("the customer changed their mind")

// placeOrder commits one order and its coupon task. In one of ten calls it rolls another order back
// first; in one of twenty it enqueues the task a second time.
func (s *shop) placeOrder(ctx context.Context, customer, number int) error {
	name := fmt.Sprintf("customer-%d", customer)
	args := couponArgs{Customer: name, Cents: 500, Refusals: s.refusals(number)}
	if rand.IntN(10) == 0 {
		err := s.transact(ctx, fmt.Sprintf("R%06d", number), args, errChangedMind)
		if !errors.Is(err, errChangedMind) {
			return err
		}
		s.rolledBack.Add(1)
	}
	order := fmt.Sprintf("A%06d", number)
	if err := s.transact(ctx, order, args, nil); err != nil {
		return err
	}
	s.placed.Add(1)
	if rand.IntN(20) > 0 {
		return nil
	}
	again, err := couponKind.Enqueue(ctx, s.db, ledger.BizID(order), args, nil)
	if err != nil {
		return fmt.Errorf("enqueue %s again: %w", order, err)
	}
	if again.New {
		return fmt.Errorf("task %s was enqueued twice: its second enqueue is new", order)
	}
	s.duplicates.Add(1)
	return nil
}

// transact places an order and enqueues its coupon in one transaction. It rolls back if reason is
// not nil.
func (s *shop) transact(ctx context.Context, order string, args couponArgs, reason error) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, orderSQL, order, args.Customer); err != nil {
			return fmt.Errorf("place order %s: %w", order, err)
		}
		if _, err := couponKind.Enqueue(ctx, tx, ledger.BizID(order), args, nil); err != nil {
			return err
		}
		return reason
	})
}
