package alarm

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/list.sql
var listSQL string

// Alarm is an alarm and the state of its delivery.
type Alarm struct {
	Receiver string         `json:"receiver"`
	Task     ledger.Key     `json:"task"`
	State    ledger.State   `json:"state"` // succeeded: delivered; dead: it cannot be delivered
	Attempt  ledger.Attempt `json:"attempt"`
	Test     bool           `json:"test"`
	Subject  string         `json:"subject"`
	Error    string         `json:"error,omitempty"` // of the last attempt, if it is not delivered
	MadeAt   time.Time      `json:"made_at"`
	DueAt    time.Time      `json:"due_at,omitzero"` // of the next attempt
}

// MaxList is the greatest limit of [ReadAlarms].
const MaxList = 1000

// ReadAlarms returns the newest alarms of every receiver, at most limit of each, by receiver, and reports whether a
// receiver has older ones. The cost does not grow with the number of older alarms.
//
// Errors: [*ledger.InvalidError], [ledger.ErrUnavailable], [ledger.ErrNotMigrated].
func ReadAlarms(ctx context.Context, db ledger.DB, limit int) (alarms []Alarm, hasMore bool, err error) {
	if limit < 1 || limit > MaxList {
		return nil, false, invalid("limit", fmt.Sprint(limit), "must be between 1 and %d", MaxList)
	}
	rows, err := db.Query(ctx, listSQL, string(Kind), int64(limit+1))
	if err != nil {
		return nil, false, pgerr.Explain("list alarms", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, false, pgerr.Explain("list alarms", err)
	}
	listed := make(map[string]int) // by receiver
	for _, id := range ids {
		receiver, _, _ := strings.Cut(id, "/")
		if listed[receiver]++; listed[receiver] > limit {
			hasMore = true
			continue
		}
		l, err := load(ctx, db, ledger.BizID(id))
		if err != nil {
			return nil, false, err
		}
		alarms = append(alarms, Alarm{
			Receiver: receiver, Task: l.task.Key, State: l.task.State, Attempt: l.task.Attempt, Test: l.args.Test,
			Subject: l.message().Subject(), Error: lastError(l.task), MadeAt: l.task.EnqueuedAt, DueAt: l.task.DueAt,
		})
	}
	return alarms, hasMore, nil
}

// ReadUndelivered returns the newest alarm of each receiver whose newest alarm has failed and is not delivered,
// except tests and cancelled alarms. It is the source of [health.AlarmUndelivered]. Errors as of [ReadAlarms].
func ReadUndelivered(ctx context.Context, db ledger.DB) ([]health.UndeliveredAlarm, error) {
	newest, _, err := ReadAlarms(ctx, db, 1)
	var undelivered []health.UndeliveredAlarm
	for _, a := range newest {
		if a.Error != "" && !a.Test && a.State != ledger.StateCancelled {
			undelivered = append(undelivered, health.UndeliveredAlarm{
				Alarm: a.Task.BizID, MadeAt: a.MadeAt, Error: a.Error,
			})
		}
	}
	return undelivered, err
}

// lastError returns the error of the last attempt to deliver an alarm, "" if it is delivered.
func lastError(t ledger.Task) string {
	if t.State == ledger.StateSucceeded {
		return ""
	}
	return t.Error
}
