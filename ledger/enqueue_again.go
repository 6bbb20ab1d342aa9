package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/enqueue_again.sql
var enqueueAgainSQL string

// IfExists decides what an enqueue does if a task with its key exists.
type IfExists string

// The values of IfExists.
const (
	// IfExistsSame writes nothing and returns the task if it has the same args. Otherwise the enqueue returns an
	// [*OtherArgsError]. This is the default.
	IfExistsSame IfExists = ""
	// IfExistsIgnore writes nothing and returns the task, whatever its args: see [Enqueued].SameArgs.
	IfExistsIgnore IfExists = "ignore"
	// IfExistsRerun enqueues the next run of a finished task, with these args, times and deadlines. A task that has not
	// finished is treated as by [IfExistsSame]: so at most one run of a key is unfinished.
	IfExistsRerun IfExists = "rerun"
	// IfExistsReplace replaces args, times and deadlines of a task that has not begun, and is [IfExistsRerun] for a
	// finished task. A task that has begun, or waits for predecessors, is treated as by [IfExistsSame].
	//
	// A worker that is at the moment beginning the task with its old args cannot finish it. An AtLeastOnce handler may
	// then have been called with the old args, and is called again with the new ones.
	IfExistsReplace IfExists = "replace"
)

// check returns an [*InvalidError] for an unknown value, and for a combination that is not possible.
func (i IfExists) check(o *EnqueueOptions) error {
	switch i {
	case IfExistsSame, IfExistsIgnore:
		return nil
	case IfExistsRerun, IfExistsReplace:
		if len(o.After) > 0 {
			return &InvalidError{Field: "if_exists", Value: string(i), Rule: "must not be set together with after"}
		}
		if o.CanRun {
			return &InvalidError{Field: "if_exists", Value: string(i), Rule: "must not be set together with can_run"}
		}
		return nil
	}
	rule := "must be ignore, replace, rerun or empty"
	return &InvalidError{Field: "if_exists", Value: string(i), Rule: rule}
}

// ParseIfExists returns the value that a text names: same, ignore, replace or rerun. The empty text is
// [IfExistsSame]. It returns an [*InvalidError] for another text.
func ParseIfExists(text string) (IfExists, error) {
	if text == "same" {
		return IfExistsSame, nil
	}
	i := IfExists(text)
	if i.check(&EnqueueOptions{}) != nil {
		rule := "must be same, ignore, replace or rerun"
		return "", &InvalidError{Field: "if_exists", Value: text, Rule: rule}
	}
	return i, nil
}

// again reports whether the row may be appended to a task that exists.
func (r firstEvent) again() bool { return r.ifExists == IfExistsRerun || r.ifExists == IfExistsReplace }

// resolve returns the results of rows whose insert did nothing, in their order.
func resolve(ctx context.Context, db DB, rows []firstEvent) ([]Enqueued, error) {
	answers := make([]Enqueued, len(rows))
	rest, err := enqueueAgain(ctx, db, rows, answers)
	if err != nil || len(rest) == 0 {
		return answers, err
	}
	restRows := rows
	if len(rest) < len(rows) {
		restRows = make([]firstEvent, len(rest))
		for j, i := range rest {
			restRows[j] = rows[i]
		}
	}
	existing, err := resolveExisting(ctx, db, restRows)
	if err != nil {
		return nil, err
	}
	for j, i := range rest {
		answers[i] = existing[j]
	}
	return answers, nil
}

// enqueueAgain enqueues the next run of the tasks of rows, or replaces their args, as the rows want it, and sets their
// answers. It returns the indices of the other rows.
func enqueueAgain(ctx context.Context, db DB, rows []firstEvent, answers []Enqueued) (rest []int, err error) {
	var kinds, ids, args, metas, actors, versions, levels, replaces pgarray.Builder
	var runAfters, runAts, startBys, finishBys pgarray.Builder
	actors.Empties = true
	var index []int // of the rows in the lists
	for i, row := range rows {
		if !row.again() {
			rest = append(rest, i)
			continue
		}
		index = append(index, i)
		kinds.Add(string(row.key.Kind))
		ids.Add(string(row.key.BizID))
		args.AddOptional(string(row.args))
		metas.AddOptional(string(row.meta))
		actors.AddOptional(row.actor)
		versions.Add(strconv.Itoa(row.dataVersion))
		runAfter, runAt := row.run.params()
		runAfters.AddOptional(runAfter)
		runAts.AddOptional(runAt)
		startBys.AddOptional(timeParam(row.startBy))
		finishBys.AddOptional(timeParam(row.finishBy))
		levels.Add(strconv.Itoa(int(row.priority)))
		replaces.Add(strconv.FormatBool(row.ifExists == IfExistsReplace))
	}
	if len(index) == 0 {
		return rest, nil
	}
	result, err := db.Query(ctx, enqueueAgainSQL, kinds.String(), ids.String(), args.String(), metas.String(),
		actors.String(), versions.String(), runAfters.String(), runAts.String(), startBys.String(),
		finishBys.String(), replaces.String(), levels.String())
	if err != nil {
		return nil, pgerr.Explain("enqueue again", err)
	}
	defer result.Close()
	answered := make([]bool, len(rows))
	var overload error
	for result.Next() {
		var n, position, version, retryAfterMS int64
		var last, policy string
		var full OverloadError
		if err := result.Scan(
			&n, &position, &version, &last, &policy, &full.Waiting, &full.MaxWaiting, &retryAfterMS); err != nil {
			return nil, pgerr.Explain("enqueue again", err)
		}
		i := index[n-1]
		if position == 0 {
			full.Kind, full.Policy = rows[i].key.Kind, OverloadPolicy(policy)
			full.RetryAfter = time.Duration(retryAfterMS) * time.Millisecond
			overload = fmt.Errorf("enqueue %s: %w", rows[i].key, &full)
			continue
		}
		answered[i] = true
		answers[i] = Enqueued{Key: rows[i].key, New: true, State: EventType(last).State(), Version: Version(version),
			SameArgs: true, Position: Position(position)}
	}
	if err := result.Err(); err != nil {
		return nil, pgerr.Explain("enqueue again", err)
	}
	for _, i := range index {
		if !answered[i] {
			rest = append(rest, i)
		}
	}
	return rest, overload
}
