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
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/receiver.sql
	receiverSQL string
)

// maxLost is the number of processes in a row that may vanish during a delivery before the alarm is buried.
const maxLost = 5

// deliverer delivers the newest alarm of a receiver.
type deliverer struct {
	db       *pgxpool.Pool
	receiver Receiver
	retry    ledger.RetryPolicy
}

// deliver delivers the newest alarm, unless it is finished, not due, or being delivered by another process. failure is
// the delivery's error, which is recorded; err is any other error.
func (d deliverer) deliver(ctx context.Context) (failure error, err error) {
	release, isLocked, err := d.lock(ctx)
	if err != nil || !isLocked {
		return nil, err
	}
	defer release()
	l, err := loadNewest(ctx, d.db, d.receiver.Name)
	if err != nil || !l.exists() || l.task.State.Finished() {
		return nil, err
	}
	if l, err = d.start(ctx, l); err != nil || l.task.State != ledger.StateRunning {
		return nil, err
	}
	fault.Point(pointStarted)
	began := time.Now()
	failure = d.receiver.send(ctx, l.message())
	if failure == nil {
		fault.Point(pointSent)
	} else if ctx.Err() != nil {
		failure = context.Cause(ctx) // a shutdown is not a failure of the receiver
	}
	// The outcome is recorded during a shutdown too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeTimeout)
	defer cancel()
	return failure, d.conclude(ctx, l, failure, time.Since(began))
}

// concludeTimeout bounds the record of a delivery's outcome. An alarm whose outcome is not recorded is sent again.
const concludeTimeout = 10 * time.Second

// lock locks the row of the receiver in a transaction of a connection of its own.
func (d deliverer) lock(ctx context.Context) (release func(), isLocked bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, d.db.Config().ConnConfig)
	if err != nil {
		return nil, false, pgerr.Explain("connect for a delivery", err)
	}
	var tx pgx.Tx
	release = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if tx != nil {
			_ = tx.Rollback(ctx) // Close does not wait until the server has released the lock
		}
		_ = conn.Close(ctx)
	}
	if _, err = conn.Exec(ctx, receiverSQL, d.receiver.Name); err == nil {
		tx, err = conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	}
	if err == nil {
		err = tx.QueryRow(ctx, lockSQL, d.receiver.Name).Scan(nil, &isLocked)
	}
	if err != nil || !isLocked {
		release()
		return nil, false, pgerr.Explain("lock a receiver", err)
	}
	return release, true, nil
}

// start appends started, preceded by released if a retry is due. If the alarm is to be delivered now, the result is
// running. start takes over an alarm that is already running: the process that delivered it has lost the lock.
func (d deliverer) start(ctx context.Context, l link) (link, error) {
	if l.task.LostInARow >= maxLost-1 && l.task.State == ledger.StateRunning {
		reason := fmt.Sprintf("%d processes were lost during its delivery", maxLost)
		return d.append(ctx, l, ledger.EventBuried, data{Reason: reason}, 0)
	}
	if l.task.State == ledger.StateRetrying || l.task.State == ledger.StateScheduled {
		now, _, err := readClock(ctx, d.db)
		if err != nil {
			return l, err
		}
		if l.task.DueAt.IsZero() || now.Before(l.task.DueAt) {
			return l, nil
		}
		reason := "due"
		if l.task.State == ledger.StateRetrying {
			reason = "retry"
		}
		if l, err = d.append(ctx, l, ledger.EventReleased, data{Reason: reason}, 0); err != nil {
			return l, err
		}
	}
	return d.append(ctx, l, ledger.EventStarted, data{}, 0)
}

// data is the data of an alarm's events.
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
func (d deliverer) append(
	ctx context.Context, l link, t ledger.EventType, event data, after time.Duration,
) (link, error) {
	return appendTo(ctx, d.db, l, t, event, after)
}

func appendTo(
	ctx context.Context, db ledger.DB, l link, t ledger.EventType, event data, after time.Duration,
) (link, error) {
	text, err := json.Marshal(event)
	if err != nil {
		return l, err
	}
	e, err := ledger.Append(ctx, db, ledger.AppendRequest{
		Key: l.task.Key, Expected: l.task.Version, Type: t, Actor: actor, Data: text, In: after,
	})
	if err != nil {
		return l, err
	}
	l.task, err = l.task.Apply(e)
	return l, err
}

// conclude appends the outcome of a delivery.
func (d deliverer) conclude(ctx context.Context, l link, failure error, duration time.Duration) error {
	event := data{DurationMS: duration.Milliseconds()}
	switch {
	case failure == nil:
		_, err := d.append(ctx, l, ledger.EventSucceeded, event, 0)
		return err
	case errors.Is(failure, context.Canceled):
		event.Reason = "the watcher is stopping"
		_, err := d.append(ctx, l, ledger.EventInterrupted, event, 0)
		return err
	}
	e := errorData{Message: printable.Short(failure.Error(), 2*maxReply), Type: "alarm.Delivery"}
	e.Fingerprint = ledger.Fingerprint(e.Type, e.Message)
	event.Error = &e
	failures := l.task.Failures + 1
	if failures < d.retry.Limit() && !l.args.Test {
		// At least a millisecond: a failed event without a delay is never released.
		delay := max(time.Millisecond, d.retry.Delay(failures, rand.Float64()))
		_, err := d.append(ctx, l, ledger.EventFailed, event, delay)
		return err
	}
	return pgx.BeginTxFunc(ctx, d.db, pgquery.Brief, func(tx pgx.Tx) error {
		failed, err := appendTo(ctx, tx, l, ledger.EventFailed, event, 0)
		if err != nil {
			return err
		}
		event.Reason = "it cannot be delivered"
		_, err = appendTo(ctx, tx, failed, ledger.EventBuried, event, 0)
		return err
	})
}
