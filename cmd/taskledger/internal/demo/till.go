package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/periodic"
)

var (
	//go:embed sql/till.sql
	tillSQL string
	//go:embed sql/till_count.sql
	tillCountSQL string
	//go:embed sql/till_waiting.sql
	tillWaitingSQL string
)

// tillKind is the shop's periodic task: it counts the till.
var tillKind = ledger.MustKind[json.RawMessage]("till.count")

// tillSchedule is due every second, and no second may be missed, whatever happens.
var tillSchedule = periodic.Schedule{
	Name: "till", Kind: tillKind.Name(), Every: time.Second, Missed: periodic.MissedAll, MissedLimit: periodic.MaxMissedLimit,
}

// countTill notes how many coupons there are. There is no unique constraint on the slot.
func countTill(ctx context.Context, tx pgx.Tx, job *workers.Job, _ json.RawMessage) error {
	_, err := tx.Exec(ctx, tillCountSQL, string(job.BizID))
	return err
}

// openTill has the till counted every second; the channel closes when nobody does so any more.
func (d *demo) openTill(ctx context.Context, fail context.CancelCauseFunc) (<-chan struct{}, error) {
	if _, err := periodic.Apply(ctx, d.db, []periodic.Schedule{tillSchedule}, nil); err != nil {
		return nil, err
	}
	r, err := periodic.New(periodic.Config{DB: d.db, Logger: d.log})
	if err != nil {
		return nil, err
	}
	return start(ctx, r.Run, fail), nil
}

// closeTill ends the counting, and waits until the last second's is done.
func (d *demo) closeTill(ctx context.Context) error {
	if err := periodic.Pause(ctx, d.db, tillSchedule.Name, ""); err != nil {
		return err
	}
	for {
		var waiting int64
		if err := d.db.QueryRow(ctx, tillWaitingSQL).Scan(&waiting); err != nil || waiting == 0 {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// proveTill reads what became of the periodic task, and judges it.
func (d *demo) proveTill(ctx context.Context, r *Report) error {
	var counted, wanted int64
	if err := d.db.QueryRow(ctx, tillSQL).Scan(&r.Slots, &counted, &r.TillCounts, &wanted); err != nil {
		return fmt.Errorf("proof of the till: %w", err)
	}
	if r.Slots != wanted {
		r.Failures = append(r.Failures, fmt.Sprintf("%d slots in %d seconds", r.Slots, wanted))
	}
	if counted != r.Slots || r.TillCounts != r.Slots {
		r.Failures = append(r.Failures, fmt.Sprintf("the till was counted %d times in %d of %d slots", r.TillCounts, counted, r.Slots))
	}
	return nil
}
