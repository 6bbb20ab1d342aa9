package periodic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/ledger"
)

// changeKind is the kind of the tasks that record changes of schedules. Each change of one schedule is a task,
// enqueued and succeeded in the transaction of the change. Its biz_id is <schedule>/<time of the change in UTC> and
// its actor is the change's. Its args are the action, the fields that differ, and the reason, if any.
const changeKind ledger.Kind = "taskledger.schedule"

// Actions that are recorded, and that [Apply] never takes.
const (
	pause  Action = "pause"
	resume Action = "resume"
	run    Action = "run"
)

// maxRecorded is the greatest length of a field's value in a record, in bytes: args may be longer.
const maxRecorded = 4 << 10

// record records a change of a schedule that tx has locked. The default actor is the database's session_user.
func record(ctx context.Context, tx pgx.Tx, d Difference, actor, reason string, now time.Time) error {
	fields := make([]Field, len(d.Fields))
	for i, f := range d.Fields {
		fields[i] = Field{Name: f.Name, From: shorten(f.From), To: shorten(f.To)}
	}
	args, err := json.Marshal(struct {
		Schedule string  `json:"schedule"`
		Action   Action  `json:"action"`
		Fields   []Field `json:"fields,omitempty"`
		Reason   string  `json:"reason,omitempty"`
	}{d.Name, d.Action, fields, reason})
	if err != nil {
		return err
	}
	if err := operation.Append(ctx, tx, changeKind, d.Name, args, actor, now); err != nil {
		return fmt.Errorf("record the change of schedule %s: %w", d.Name, err)
	}
	return nil
}

// checkReason returns an [*ledger.InvalidError] for a reason that is too long.
func checkReason(reason string) error { return operation.Operation{Reason: reason}.Validate() }

// shorten returns a text that is short enough for a record.
func shorten(s string) string {
	if len(s) <= maxRecorded {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:maxRecorded], len(s))
}
