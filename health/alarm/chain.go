package alarm

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/newest.sql
var newestSQL string

// Kind is the kind of the tasks that alarms are. No worker works on it.
const Kind ledger.Kind = "taskledger.alarm"

// args are those of an alarm's task.
type args struct {
	Ledger string `json:"ledger"`
	Items  []Item `json:"items"`
	More   int    `json:"more,omitempty"`
	Test   bool   `json:"test,omitempty"`
	Before known  `json:"before"` // what its receiver knew
	After  known  `json:"after"`  // and knows once it has it
}

// link is the newest alarm of a receiver's chain; without task, if there is none.
type link struct {
	number int64
	task   ledger.Task
	args   args
}

func (l link) exists() bool { return l.number > 0 }

// message is what its receiver gets.
func (l link) message() Message {
	return Message{Alarm: string(l.task.BizID), Ledger: l.args.Ledger, At: l.task.EnqueuedAt, Items: l.args.Items, More: l.args.More}
}

// known is what the receiver knows, after an alarm that is finished.
func (l link) known() known {
	if l.task.State == ledger.StateDead {
		return l.args.Before
	}
	return l.args.After
}

// newest returns the newest alarm of a receiver.
func newest(ctx context.Context, db ledger.DB, receiver string) (link, error) {
	id, err := queryOne[string](ctx, db, newestSQL, string(Kind), receiver)
	if err != nil || id == "" {
		return link{}, pgerr.Explain("find the newest alarm", err)
	}
	return load(ctx, db, ledger.BizID(id))
}

func load(ctx context.Context, db ledger.DB, id ledger.BizID) (l link, err error) {
	_, number, _ := strings.Cut(string(id), "/")
	if l.number, err = strconv.ParseInt(number, 10, 64); err != nil {
		return link{}, fmt.Errorf("task %s/%s is no alarm of taskledger's: %w", Kind, id, err)
	}
	if l.task, err = ledger.Load(ctx, db, ledger.Key{Kind: Kind, BizID: id}); err != nil {
		return link{}, err
	}
	if err := json.Unmarshal(l.task.Args, &l.args); err != nil {
		return link{}, &ledger.CorruptError{What: "args of alarm " + string(id), Err: err}
	}
	return l, nil
}

// add makes the alarm that follows l, unless somebody has. Its receiver must know what l left.
func (l link) add(ctx context.Context, db ledger.DB, receiver string, a args) (bool, error) {
	message := Message{Items: a.Items}
	message.limit()
	a.Items, a.More = message.Items, message.More
	text, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	key := ledger.Key{Kind: Kind, BizID: ledger.BizID(fmt.Sprintf("%s/%012d", receiver, l.number+1))}
	answer, err := ledger.Enqueue(ctx, db, key, text, &ledger.EnqueueOptions{Actor: actor})
	return answer.New, err
}

// actor of all that a watcher does.
const actor = "alarm"
