package alarm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// TestResult is the outcome of [Test].
type TestResult struct {
	Alarm ledger.BizID `json:"alarm"`
	State ledger.State `json:"state"`           // succeeded: delivered; dead: it cannot be delivered
	Error string       `json:"error,omitempty"` // of the last attempt
}

// Test creates an alarm that is marked as a test, delivers it once, and returns the outcome. A failed delivery is
// not an error. Test needs no watcher; if one runs, either delivers the alarm.
//
// Errors: [*ledger.InvalidError]; an error if the last alarm of the receiver is unfinished, with the error of its
// last attempt; [ledger.ErrUnavailable], [ledger.ErrNotMigrated].
func Test(ctx context.Context, db *pgxpool.Pool, r Receiver) (TestResult, error) {
	if err := r.Validate(); err != nil {
		return TestResult{}, err
	}
	last, err := loadNewest(ctx, db, r.Name)
	if err != nil {
		return TestResult{}, err
	}
	if last.exists() && !last.task.State.Finished() {
		err := fmt.Errorf("receiver %s: alarm %s must be finished before a test, and is %s",
			r.Name, last.task.BizID, last.task.State)
		if last.task.Error != "" {
			err = fmt.Errorf("%w; its last attempt failed: %s", err, printable.Text(last.task.Error))
		}
		return TestResult{}, err
	}
	now, installation, err := readClock(ctx, db)
	if err != nil {
		return TestResult{}, err
	}
	unchanged := last.baseline()
	added, err := last.add(ctx, db, r.Name, args{
		Ledger: installation, Test: true, Before: unchanged, After: unchanged,
		Items: []Item{{What: WhatTest, Status: StatusNew, Text: "this is a test: alarms reach you", Since: now}},
	})
	if err != nil {
		return TestResult{}, err
	}
	if !added {
		return TestResult{}, fmt.Errorf("receiver %s: another process created an alarm at the same time", r.Name)
	}
	return deliverTest(ctx, db, r)
}

// deliverTest delivers the newest alarm, or waits for the watcher that delivers it.
func deliverTest(ctx context.Context, db *pgxpool.Pool, r Receiver) (TestResult, error) {
	for {
		if _, err := (deliverer{db, r, defaultRetry}).deliver(ctx); err != nil && !isConflict(err) {
			return TestResult{}, err
		}
		l, err := loadNewest(ctx, db, r.Name)
		if err != nil {
			return TestResult{}, err
		}
		if l.task.State.Finished() {
			return TestResult{l.task.BizID, l.task.State, lastError(l.task)}, nil
		}
		if err := loop.Sleep(ctx, 50*time.Millisecond); err != nil {
			return TestResult{}, errors.Join(err, fmt.Errorf("alarm %s is %s", l.task.BizID, l.task.State))
		}
	}
}
