package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/workers"
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

// tillSchedule is due every second. Firings that were missed during an outage are made up.
var tillSchedule = periodic.Schedule{
	Name: "till", Kind: tillKind.Name(), Every: time.Second,
	Missed: periodic.MissedAll, MissedLimit: 1000,
}

// countTill records the number of coupons. The firing is not constrained to be unique.
func countTill(ctx context.Context, tx pgx.Tx, job *workers.Job, _ json.RawMessage) error {
	_, err := tx.Exec(ctx, tillCountSQL, string(job.BizID))
	return err
}

// storeTill stores the schedule.
func (d *demo) storeTill(ctx context.Context) error {
	_, err := periodic.Apply(ctx, d.db, []periodic.Schedule{tillSchedule}, nil)
	return err
}

// finishTill pauses the schedule and waits until the till of the last firing is counted.
func (d *demo) finishTill(ctx context.Context) error {
	if err := periodic.Pause(ctx, d.db, tillSchedule.Name, "", ""); err != nil {
		return err
	}
	for {
		var waiting int64
		if err := d.db.QueryRow(ctx, tillWaitingSQL).Scan(&waiting); err != nil || waiting == 0 {
			return err
		}
		if err := loop.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// proveTill reads the outcome of the periodic task into r, with a failure for each firing that is missing
// or was counted twice.
func (d *demo) proveTill(ctx context.Context, r *Report) error {
	var countedFirings, seconds int64
	if err := d.db.QueryRow(ctx, tillSQL).Scan(&r.Firings, &countedFirings, &r.TillCounts, &seconds); err != nil {
		return fmt.Errorf("proof of the till: %w", err)
	}
	if r.Firings != seconds {
		r.Failures = append(r.Failures, fmt.Sprintf("%d firings in %d seconds", r.Firings, seconds))
	}
	if countedFirings != r.Firings || r.TillCounts != r.Firings {
		r.Failures = append(r.Failures, fmt.Sprintf("the till was counted %d times for %d of %d firings",
			r.TillCounts, countedFirings, r.Firings))
	}
	return nil
}
