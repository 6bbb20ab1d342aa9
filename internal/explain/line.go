package explain

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/line_before.sql
var lineBeforeSQL string

// maxBefore is the number of earlier tasks in line that are counted.
const maxBefore = 1000

// inLine returns a task's place in its line, and the task whose turn it is.
func (s Source) inLine(ctx context.Context, t ledger.Task) (string, error) {
	var holder ledger.Key
	var state ledger.State
	var since time.Time
	var before int64
	var isMore bool
	ok, err := pgquery.Row(ctx, s.DB, lineBeforeSQL, []any{string(t.Kind), string(t.BizID), int64(maxBefore)},
		(*string)(&holder.Kind), (*string)(&holder.BizID), (*string)(&state), pgquery.Micros(&since), &before, &isMore)
	if err != nil {
		return "", pgerr.Explain("read line", err)
	}
	line := "line " + printable.Text(t.OrderKey)
	isFree := holder == ledger.Key{}
	switch {
	case !ok: // its turn has begun meanwhile
		return "", nil
	case holder == t.Key: // it was dead in its turn, and has been released
		before, isMore = 0, false
	case !isFree:
		before++
	}
	switch {
	case isMore:
		line = fmt.Sprintf("More than %s tasks stand before it in %s.", printable.Count(maxBefore), line)
	case before == 0:
		return "It is next in " + line + ": its turn begins within a moment if taskledger serve is running.", nil
	default:
		line = fmt.Sprintf("It is %s in %s.", ordinal(before+1), line)
	}
	name, age := printable.Text(holder.String()), printable.Age(time.Since(since))
	switch {
	case isFree:
		return line, nil
	case state == ledger.StateDead:
		return fmt.Sprintf("%s The line stands, because %s has been dead for %s: release that task; to go on without "+
			"it, release and cancel it.", line, name, age), nil
	default:
		return fmt.Sprintf("%s %s has had its turn for %s (%s).", line, name, age, state), nil
	}
}

var ordinals = []string{"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"}

// ordinal returns an ordinal number, such as "third" or "number 12".
func ordinal(n int64) string {
	if n <= int64(len(ordinals)) {
		return ordinals[n-1]
	}
	return "number " + printable.Count(n)
}
