package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// The command for parked events reports what became of them: they have failed again, are handled, or are there no more.
func TestRetryOfASubscriberWaitsForTheOutcome(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator", "subscriber")
	ledgertest.Enqueue(t, pool, ledgertest.Key(t, "coupon.send/1"), "{}")
	var isFixed atomic.Bool
	subscription := outbox.Subscription{
		DB: pool, Name: "coupons", Standby: 50 * time.Millisecond, OnFailure: outbox.Park,
		Handle: func(context.Context, pgx.Tx, []ledger.Event) error {
			if isFixed.Load() {
				return nil
			}
			return errors.New("no such campaign")
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- outbox.Subscribe(ctx, subscription) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		all, err := subscribers.ReadParked(t.Context(), pool, "coupons", subscribers.EventName{}, 1)
		if err == nil && len(all) == 1 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("the event is not parked")
		}
	}
	retry := func() (string, error) {
		var out bytes.Buffer
		a := newApp()
		a.stdout, a.stderr = &out, &out
		cmd := a.newRootCommand()
		cmd.SetArgs([]string{"--database-url", pool.Config().ConnString(), "retry", "parked", "--subscriber", "coupons",
			"coupon.send", "1", "--wait", "1m"})
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := retry(); err == nil ||
		!strings.Contains(err.Error(), "has failed again (failures: 2): no such campaign") {
		t.Errorf("%s, %v", out, err)
	}
	isFixed.Store(true)
	if out, err := retry(); err != nil || out != "handled: 1 events\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := retry(); !errors.Is(err, subscribers.ErrNotParked) {
		t.Errorf("%s, %v", out, err)
	}
}
