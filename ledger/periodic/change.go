package periodic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// ChangeKind is the kind of the tasks on record for what people do to schedules: one for each
// change of one schedule, in the transaction of the change, done as soon as it exists. Its biz_id is
// <schedule>/<when, in UTC>, its actor who did it, and its args say what: the action, and what differs.
const ChangeKind ledger.Kind = "taskledger.schedule"

// The actions of which only the record tells.
const (
	paused  Action = "pause"
	resumed Action = "resume"
)

// maxRecorded bounds what a record quotes of a field, in bytes: args may be long, and there are two.
const maxRecorded = 4 << 10

// record records a change of a schedule that tx has locked, by actor or the database's session_user.
func record(ctx context.Context, tx pgx.Tx, d Difference, actor string, now time.Time) error {
	fields := make([]Field, len(d.Fields))
	for i, f := range d.Fields {
		fields[i] = Field{Name: f.Name, From: quote(f.From), To: quote(f.To)}
	}
	args, err := json.Marshal(struct {
		Schedule string  `json:"schedule"`
		Action   Action  `json:"action"`
		Fields   []Field `json:"fields,omitempty"`
	}{d.Name, d.Action, fields})
	if err != nil {
		return err
	}
	for at := now; ; at = at.Add(time.Microsecond) { // if the clock was set back, some other change may have been then
		key := ledger.Key{Kind: ChangeKind, BizID: ledger.BizID(d.Name + "/" + at.UTC().Format("2006-01-02T15:04:05.000000Z"))}
		answer, err := ledger.Enqueue(ctx, tx, key, args, &ledger.EnqueueOptions{Actor: actor})
		if err != nil {
			return fmt.Errorf("record what was done to schedule %s: %w", d.Name, err)
		}
		if answer.New {
			_, err := ledger.Append(ctx, tx, ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded, Actor: actor})
			return err
		}
	}
}

// quote returns the beginning of a text that is too long to be recorded.
func quote(s string) string {
	if len(s) <= maxRecorded {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:maxRecorded], len(s))
}
