package alarm

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/lock.sql
var lockSQL string

// Crash points, see internal/fault.
const (
	pointFound   = "alarm.found"   // between the decision that there is news and its alarm
	pointMade    = "alarm.made"    // between the commit of an alarm and its delivery
	pointStarted = "alarm.started" // between started and the delivery
	pointSent    = "alarm.sent"    // between the delivery and succeeded
)

// maxLost is how many processes in a row may vanish while they deliver an alarm.
const maxLost = 5

// deliverer delivers the newest alarm of a receiver.
type deliverer struct {
	db       *pgxpool.Pool
	receiver Receiver
	retry    ledger.RetryPolicy
}

// deliver delivers the newest alarm, if it is unfinished and due and nobody else is at it. It
// returns why the delivery failed, which is on record then, or what kept it from trying.
func (d deliverer) deliver(ctx context.Context) (failure error, err error) {
	release, ours, err := d.lock(ctx)
	if err != nil || !ours {
		return nil, err
	}
	defer release()
	l, err := newest(ctx, d.db, d.receiver.Name)
	if err != nil || !l.exists() || l.task.State.Finished() {
		return nil, err
	}
	if l, err = d.start(ctx, l); err != nil || l.task.State != ledger.StateRunning {
		return nil, err
	}
	fault.Point(pointStarted)
	begun := time.Now()
	failure = d.receiver.send(ctx, l.message())
	if failure == nil {
		fault.Point(pointSent)
	} else if ctx.Err() != nil {
		failure = context.Cause(ctx) // stopping is not the receiver's fault
	}
	// What has happened is recorded also while this process stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	return failure, d.conclude(ctx, l, failure, time.Since(begun))
}

// lock takes the advisory lock of the receiver in a transaction of a connection of its own.
func (d deliverer) lock(ctx context.Context) (release func(), ours bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, d.db.Config().ConnConfig)
	if err != nil {
		return nil, false, pgerr.Explain("connect for a delivery", err)
	}
	release = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // which ends the transaction
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err == nil {
		err = tx.QueryRow(ctx, lockSQL, d.receiver.Name).Scan(nil, &ours)
	}
	if err != nil || !ours {
		release()
		return nil, false, pgerr.Explain("lock a receiver", err)
	}
	return release, true, nil
}

// start appends started, before it released if the alarm was to be tried again by now. The alarm it
// returns is running if it is to be delivered. One that was running already was in the hands of
// somebody who has lost the lock, so it is taken over.
func (d deliverer) start(ctx context.Context, l link) (link, error) {
	if l.task.LostInARow >= maxLost-1 && l.task.State == ledger.StateRunning {
		return d.append(ctx, l, ledger.EventBuried, data{Reason: fmt.Sprintf("%d processes were lost delivering it", maxLost)}, 0)
	}
	if l.task.State == ledger.StateRetrying || l.task.State == ledger.StateScheduled {
		var now time.Time
		if err := d.db.QueryRow(ctx, nowSQL).Scan(&now, nil); err != nil {
			return l, pgerr.Explain("read the clock", err)
		}
		if l.task.DueAt.IsZero() || now.Before(l.task.DueAt) {
			return l, nil
		}
		reason := "due"
		if l.task.State == ledger.StateRetrying {
			reason = "retry"
		}
		var err error
		if l, err = d.append(ctx, l, ledger.EventReleased, data{Reason: reason}, 0); err != nil {
			return l, err
		}
	}
	return d.append(ctx, l, ledger.EventStarted, data{}, 0)
}

// data is that of an alarm's events.
type data struct {
	Reason     string     `json:"reason,omitempty"`
	Error      *errorData `json:"error,omitempty"`
	DurationMS int64      `json:"duration_ms,omitempty"`
}

type errorData struct {
	Message     string `json:"message"`
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"`
}

// append appends an event and returns the alarm after it.
func (d deliverer) append(ctx context.Context, l link, t ledger.EventType, what data, after time.Duration) (link, error) {
	return appendTo(ctx, d.db, l, t, what, after)
}

func appendTo(ctx context.Context, db ledger.DB, l link, t ledger.EventType, what data, after time.Duration) (link, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return l, err
	}
	e, err := ledger.Append(ctx, db, ledger.AppendRequest{
		Key: l.task.Key, Expected: l.task.Version, Type: t, Actor: actor, Data: text, After: after,
	})
	if err != nil {
		return l, err
	}
	l.task, err = l.task.Apply(e)
	return l, err
}

// conclude appends the outcome of a delivery.
func (d deliverer) conclude(ctx context.Context, l link, failure error, took time.Duration) error {
	what := data{DurationMS: took.Milliseconds()}
	switch {
	case failure == nil:
		_, err := d.append(ctx, l, ledger.EventSucceeded, what, 0)
		return err
	case errors.Is(failure, context.Canceled):
		what.Reason = "the watcher is stopping"
		_, err := d.append(ctx, l, ledger.EventInterrupted, what, 0)
		return err
	}
	e := errorData{Message: printable.Short(failure.Error(), 2*maxSaid), Type: "alarm.Delivery"}
	e.Fingerprint = ledger.Fingerprint(e.Type, e.Message)
	what.Error = &e
	failures := l.task.Failures + 1
	if failures < d.retry.Limit() && !l.args.Test {
		// At least a millisecond: a failed event without a moment would wait for ever.
		_, err := d.append(ctx, l, ledger.EventFailed, what, max(time.Millisecond, d.retry.Delay(failures, rand.Float64())))
		return err
	}
	return pgx.BeginTxFunc(ctx, d.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		failed, err := appendTo(ctx, tx, l, ledger.EventFailed, what, 0)
		if err != nil {
			return err
		}
		what.Reason = "it could not be delivered"
		_, err = appendTo(ctx, tx, failed, ledger.EventBuried, what, 0)
		return err
	})
}
