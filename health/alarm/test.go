package alarm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

// Tested is what came of a test.
type Tested struct {
	Alarm ledger.BizID `json:"alarm"`
	State ledger.State `json:"state"`           // succeeded: its receiver has it; dead: it could not be delivered
	Error string       `json:"error,omitempty"` // of its last attempt
}

// Test makes an alarm that says it is a test, delivers it once, and returns what came of it. A
// failure to deliver is not an error. It needs no watcher; where one runs, that may deliver it.
//
// Errors: [*ledger.InvalidError]; that the last alarm of the receiver is not finished, with what
// its last attempt said; [ledger.ErrUnavailable], [ledger.ErrNotMigrated].
func Test(ctx context.Context, db *pgxpool.Pool, r Receiver) (Tested, error) {
	if err := r.Validate(); err != nil {
		return Tested{}, err
	}
	last, err := newest(ctx, db, r.Name)
	if err != nil {
		return Tested{}, err
	}
	if last.exists() && !last.task.State.Finished() {
		err := fmt.Errorf("receiver %s: alarm %s is %s, and a test comes after it", r.Name, last.task.BizID, last.task.State)
		if last.task.Error != "" {
			err = fmt.Errorf("%w; its last attempt failed: %s", err, printable.Text(last.task.Error))
		}
		return Tested{}, err
	}
	var observed observation
	var installation string
	if err := db.QueryRow(ctx, nowSQL).Scan(&observed.now, &installation); err != nil {
		return Tested{}, pgerr.Explain("read the clock", err)
	}
	before := last.known()
	made, err := last.add(ctx, db, r.Name, args{Ledger: installation, Test: true, Before: before, After: before,
		Items: []Item{{What: WhatTest, Status: StatusNew, Text: "this is a test: alarms reach you", Since: observed.now.UTC()}}})
	if err != nil {
		return Tested{}, err
	}
	if !made {
		return Tested{}, fmt.Errorf("receiver %s: somebody else made an alarm at the same time", r.Name)
	}
	return deliverTest(ctx, db, r)
}

// deliverTest delivers the newest alarm, or waits for who does.
func deliverTest(ctx context.Context, db *pgxpool.Pool, r Receiver) (Tested, error) {
	for {
		if _, err := (deliverer{db, r, Retry}).deliver(ctx); err != nil && !moved(err) {
			return Tested{}, err
		}
		l, err := newest(ctx, db, r.Name)
		if err != nil {
			return Tested{}, err
		}
		if l.task.State.Finished() {
			return Tested{l.task.BizID, l.task.State, failureOf(l.task)}, nil
		}
		if err := loop.Sleep(ctx, 50*time.Millisecond); err != nil {
			return Tested{}, errors.Join(err, fmt.Errorf("alarm %s is %s", l.task.BizID, l.task.State))
		}
	}
}
