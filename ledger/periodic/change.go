package periodic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

// ChangeKind is the kind of the tasks that record changes of schedules. Each change of one schedule is a task,
// enqueued and succeeded in the transaction of the change. Its biz_id is <schedule>/<time of the change in UTC>,
// its actor is that of the change, and its args are the action and the fields that differ.
const ChangeKind ledger.Kind = "taskledger.schedule"

// Actions that are recorded, and that [Apply] never takes.
const (
	pause  Action = "pause"
	resume Action = "resume"
)

// maxRecorded is the greatest length of a field's value in a record, in bytes: args may be longer.
const maxRecorded = 4 << 10

// record records a change of a schedule that tx has locked. Default of actor: the database's session_user.
func record(ctx context.Context, tx pgx.Tx, d Difference, actor string, now time.Time) error {
	fields := make([]Field, len(d.Fields))
	for i, f := range d.Fields {
		fields[i] = Field{Name: f.Name, From: shorten(f.From), To: shorten(f.To)}
	}
	args, err := json.Marshal(struct {
		Schedule string  `json:"schedule"`
		Action   Action  `json:"action"`
		Fields   []Field `json:"fields,omitempty"`
	}{d.Name, d.Action, fields})
	if err != nil {
		return err
	}
	// If the clock was set back, an earlier change may have this time.
	for at := now; ; at = at.Add(time.Microsecond) {
		id := d.Name + "/" + at.UTC().Format("2006-01-02T15:04:05.000000Z")
		key := ledger.Key{Kind: ChangeKind, BizID: ledger.BizID(id)}
		answer, err := ledger.Enqueue(reserved.Allow(ctx), tx, key, args, &ledger.EnqueueOptions{Actor: actor})
		if err != nil {
			return fmt.Errorf("record the change of schedule %s: %w", d.Name, err)
		}
		if answer.New {
			_, err := ledger.Append(ctx, tx, ledger.AppendRequest{
				Key: key, Expected: 1, Type: ledger.EventSucceeded, Actor: actor,
			})
			return err
		}
	}
}

// shorten returns a text that is short enough for a record.
func shorten(s string) string {
	if len(s) <= maxRecorded {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:maxRecorded], len(s))
}
