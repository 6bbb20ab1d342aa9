package explain

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/line_before.sql
	lineBeforeSQL string
	//go:embed sql/line.sql
	lineSQL string
	//go:embed sql/line_tasks.sql
	lineTasksSQL string
)

// maxBefore is the number of earlier tasks in line that are counted.
const maxBefore = 1000

// placesPerTask is the number of places of a line that are read for each listed task. Tasks that have left the line are
// skipped.
const placesPerTask = 10

// LineTask is a task at the head of a line.
type LineTask struct {
	Key   ledger.Key
	State ledger.State // in_line, unless it is its turn
}

// LineTasks returns at most limit tasks of a line: its head, then the others in order.
// Tasks that may not be named have the zero key. Its cost does not grow with the line. It never commits.
func (s Source) LineTasks(ctx context.Context, orderKey string, limit int) ([]LineTask, error) {
	rows, err := s.DB.Query(ctx, lineTasksSQL, orderKey, int64(limit), int64(placesPerTask*limit))
	if err != nil {
		return nil, pgerr.Explain("read line", err)
	}
	defer rows.Close()
	var all []LineTask
	for rows.Next() {
		var t LineTask
		if err := rows.Scan((*string)(&t.Key.Kind), (*string)(&t.Key.BizID), (*string)(&t.State)); err != nil {
			return nil, pgerr.Explain("read line", err)
		}
		if !s.mayName(t.Key.Kind) {
			t.Key = ledger.Key{}
		}
		all = append(all, t)
	}
	return all, pgerr.Explain("read line", rows.Err())
}

// turn is the task whose turn it is in a line.
type turn struct {
	holder ledger.Key // zero: the line is free
	state  ledger.State
	since  time.Time
	before int64 // how many tasks wait, or stand before a task in the line
	isMore bool  // than these
}

func (t *turn) columns() []any {
	return []any{(*string)(&t.holder.Kind), (*string)(&t.holder.BizID), (*string)(&t.state), pgquery.Micros(&t.since),
		&t.before, &t.isMore}
}

func (t *turn) isFree() bool { return t.holder == ledger.Key{} }

// sentence names the task whose turn it is, since when, and why it does not begin. It returns "" if the line is free.
func (s Source) sentence(ctx context.Context, t *turn) (string, error) {
	since := s.age(time.Since(t.since))
	name, first := "a task of another kind", "A task of another kind"
	mayName := s.mayName(t.holder.Kind)
	if mayName {
		name = printable.Text(t.holder.String())
		first = name
	}
	switch {
	case t.isFree():
		return "", nil
	case t.state == ledger.StateDead:
		return fmt.Sprintf(" The line stands, because %s has been dead for %s: release that task; to go on without "+
			"it, release and cancel it.", name, since), nil
	}
	if t.state != ledger.StateAvailable {
		return fmt.Sprintf(" %s is first, and %s for %s.", first, strings.ReplaceAll(string(t.state), "_", " "),
			since), nil
	}
	text := fmt.Sprintf(" %s is first, and has waited %s for a worker.", first, since)
	if !mayName {
		return text, nil
	}
	why, _, err := s.obstacle(ctx, t.holder)
	if rest, isIt := strings.CutPrefix(why, "It "); isIt {
		text += " That task " + rest
	}
	return text, err
}

// Line returns how many tasks wait in a line, and which task is first since when. It returns "" if no task waits or
// runs. Its cost does not grow with the line. It never commits.
func (s Source) Line(ctx context.Context, orderKey string) (string, error) {
	var t turn
	if _, err := pgquery.Row(ctx, s.DB, lineSQL, []any{orderKey, int64(maxBefore)}, t.columns()...); err != nil {
		return "", pgerr.Explain("read line", err)
	}
	name := "line " + printable.Text(orderKey)
	switch {
	case t.isMore:
		name = fmt.Sprintf("More than %s tasks wait in %s.", printable.Count(maxBefore), name)
	case t.before == 1:
		name = "1 task waits in " + name + "."
	case t.before > 1 || !t.isFree():
		name = fmt.Sprintf("%s tasks wait in %s.", printable.Count(t.before), name)
	default:
		return "", nil
	}
	rest, err := s.sentence(ctx, &t)
	return name + rest, err
}

// inLine returns a task's place in its line, and the task whose turn it is.
func (s Source) inLine(ctx context.Context, t ledger.Task) (string, error) {
	var of turn
	ok, err := pgquery.Row(ctx, s.DB, lineBeforeSQL, []any{string(t.Kind), string(t.BizID), int64(maxBefore)},
		of.columns()...)
	if err != nil {
		return "", pgerr.Explain("read line", err)
	}
	line := "line " + printable.Text(t.OrderKey)
	switch {
	case !ok: // its turn has begun meanwhile
		return "", nil
	case of.holder == t.Key: // it was dead in its turn, and has been released
		of.before, of.isMore = 0, false
	case !of.isFree():
		of.before++
	}
	switch {
	case of.isMore:
		line = fmt.Sprintf("More than %s tasks stand before it in %s.", printable.Count(maxBefore), line)
	case of.before == 0:
		return "It is next in " + line + ": its turn begins within a moment if taskledger serve is running.", nil
	default:
		line = fmt.Sprintf("It is %s in %s.", ordinal(of.before+1), line)
	}
	rest, err := s.sentence(ctx, &of)
	return line + rest, err
}

var ordinals = []string{"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"}

// ordinal returns an ordinal number, such as "third" or "number 12".
func ordinal(n int64) string {
	if n <= int64(len(ordinals)) {
		return ordinals[n-1]
	}
	return "number " + printable.Count(n)
}
