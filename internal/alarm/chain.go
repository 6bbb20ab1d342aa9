package alarm

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/newest.sql
var newestSQL string

// Kind is the kind of alarms. No worker handles it.
const Kind = health.AlarmKind

// actor is the author of a watcher's events.
const actor = "alarm"

// args are the args of an alarm's task.
type args struct {
	Ledger string   `json:"ledger"`
	Items  []Item   `json:"items"`
	More   int      `json:"more,omitempty"`
	Test   bool     `json:"test,omitempty"`
	Before baseline `json:"before"` // before the alarm
	After  baseline `json:"after"`  // once it is delivered
}

// link is an alarm in the chain of its receiver. The zero value is the beginning of a chain without alarms.
type link struct {
	number int64
	task   ledger.Task
	args   args
}

func (l link) exists() bool { return l.number > 0 }

// message returns the message for the receiver.
func (l link) message() Message {
	return Message{
		Alarm: string(l.task.BizID), Ledger: l.args.Ledger, At: l.task.EnqueuedAt,
		Items: l.args.Items, More: l.args.More,
	}
}

// baseline returns the baseline of the receiver after a finished alarm.
func (l link) baseline() baseline {
	if l.task.State == ledger.StateDead {
		return l.args.Before
	}
	return l.args.After
}

// loadNewest loads the newest alarm of a receiver.
func loadNewest(ctx context.Context, db ledger.DB, receiver string) (link, error) {
	var id string
	found, err := pgquery.Row(ctx, db, newestSQL, []any{string(Kind), receiver}, &id)
	if err != nil || !found {
		return link{}, pgerr.Explain("find the newest alarm", err)
	}
	return load(ctx, db, ledger.BizID(id))
}

func load(ctx context.Context, db ledger.DB, id ledger.BizID) (l link, err error) {
	_, number, _ := strings.Cut(string(id), "/")
	if l.number, err = strconv.ParseInt(number, 10, 64); err != nil {
		return link{}, fmt.Errorf("task %s/%s is not an alarm: %w", Kind, id, err)
	}
	if l.task, err = ledger.Load(ctx, db, ledger.Key{Kind: Kind, BizID: id}); err != nil {
		return link{}, err
	}
	if l.task.Args == nil { // erased: its news counts as unreported
		return l, nil
	}
	if err := json.Unmarshal(l.task.Args, &l.args); err != nil {
		return link{}, &ledger.CorruptError{What: "args of alarm " + string(id), Err: err}
	}
	return l, nil
}

// add adds the next alarm to the chain. It returns false if another process has added an alarm. a.Before must be the
// baseline of l.
func (l link) add(ctx context.Context, db ledger.DB, receiver string, a args) (bool, error) {
	message := Message{Items: a.Items}
	message.limit()
	a.Items, a.More = message.Items, message.More
	text, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	key := ledger.Key{Kind: Kind, BizID: ledger.BizID(fmt.Sprintf("%s/%019d", receiver, l.number+1))}
	answer, err := ledger.Enqueue(reserved.Allow(ctx), db, key, text, &ledger.EnqueueOptions{
		Actor: actor, IfExists: ledger.IfExistsIgnore,
	})
	return answer.New, err
}
