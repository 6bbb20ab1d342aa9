package ledger

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/enqueue_again.sql
	enqueueAgainSQL string
	//go:embed sql/enqueue_again_one.sql
	enqueueAgainOneSQL string
	//go:embed sql/runs_archived.sql
	runsArchivedSQL string
)

// IfExists decides what an enqueue does if a task with its key exists.
//
// IfExistsRerun, IfExistsReplace and IfExistsFollow need the rights of [Cancel] to an existing task, in every state,
// and to the run that waits behind it. Otherwise the error has SQLSTATE 42501.
type IfExists string

// The values of IfExists.
const (
	// IfExistsSame writes nothing and returns the task if its args are the same. Otherwise the enqueue returns an
	// [*OtherArgsError]. This is the default.
	IfExistsSame IfExists = ""
	// IfExistsIgnore writes nothing and returns the task, whatever its args: see [Enqueued].SameArgs.
	IfExistsIgnore IfExists = "ignore"
	// IfExistsRerun enqueues the next run of a finished task, with these args, times and deadlines. A task that has not
	// finished is treated as by [IfExistsSame]: so at most one run of a key is unfinished. An archived task has
	// finished.
	IfExistsRerun IfExists = "rerun"
	// IfExistsReplace replaces args, times and deadlines of a task that has not begun, and is [IfExistsRerun] for a
	// finished task. A task that has begun, or waits for predecessors, is treated as by [IfExistsSame]. A task in line
	// takes its place at the end of its line, and keeps its order key.
	//
	// A worker that is at the moment beginning the task with its old args cannot finish it. An AtLeastOnce handler may
	// then have been called with the old args, and is called again with the new ones.
	IfExistsReplace IfExists = "replace"
	// IfExistsFollow is [IfExistsReplace], and lets one more run follow a task that has begun, or waits for
	// predecessors: with these args, times and deadlines, as soon as the task has finished. While that run waits, a
	// further enqueue replaces its args, so at most one waits. If the task is cancelled, so is the waiting run; after
	// every other end it begins. [Enqueued] is then new, with the state and the version of the task that runs.
	IfExistsFollow IfExists = "follow"
)

// check returns an [*InvalidError] for an unknown value, and for a combination that is not possible.
func (i IfExists) check(o *EnqueueOptions) error {
	switch i {
	case IfExistsSame, IfExistsIgnore:
		return i.checkDelays(o)
	case IfExistsRerun, IfExistsReplace, IfExistsFollow:
		if len(o.After) > 0 {
			return &InvalidError{Field: "if_exists", Value: string(i), Rule: "must not be set together with after"}
		}
		if o.CanRun {
			return &InvalidError{Field: "if_exists", Value: string(i), Rule: "must not be set together with can_run"}
		}
		return i.checkDelays(o)
	}
	rule := "must be ignore, rerun, replace, follow or empty"
	return &InvalidError{Field: "if_exists", Value: string(i), Rule: rule}
}

// checkDelays returns an [*InvalidError] if DeferAtMost or ThrottleFor is invalid, or has no effect.
func (i IfExists) checkDelays(o *EnqueueOptions) error {
	const deferAtMost, throttleFor = "defer_at_most", "throttle_for"
	switch {
	case o.DeferAtMost < 0:
		return &InvalidError{Field: deferAtMost, Value: o.DeferAtMost.String(), Rule: "must not be negative"}
	case o.ThrottleFor < 0:
		return &InvalidError{Field: throttleFor, Value: o.ThrottleFor.String(), Rule: "must not be negative"}
	case o.DeferAtMost != 0 && i != IfExistsReplace && i != IfExistsFollow:
		return &InvalidError{Field: deferAtMost, Rule: "must be set together with if_exists replace or follow"}
	case o.ThrottleFor != 0 && (i == IfExistsSame || i == IfExistsIgnore):
		return &InvalidError{Field: throttleFor, Rule: "must be set together with if_exists rerun, replace or follow"}
	}
	return nil
}

// ParseIfExists returns the value that a text names: same, ignore, rerun, replace or follow. The empty text is
// [IfExistsSame]. It returns an [*InvalidError] for another text.
func ParseIfExists(text string) (IfExists, error) {
	if text == "same" {
		return IfExistsSame, nil
	}
	i := IfExists(text)
	if i.check(&EnqueueOptions{}) != nil {
		rule := "must be same, ignore, rerun, replace or follow"
		return "", &InvalidError{Field: "if_exists", Value: text, Rule: rule}
	}
	return i, nil
}

// again reports whether the row may be appended to a task that exists.
func (r firstEvent) again() bool {
	return r.ifExists == IfExistsRerun || r.ifExists == IfExistsReplace || r.ifExists == IfExistsFollow
}

// resolve returns the results of rows whose insert did nothing, in their order. Entries of one key take effect in their
// order.
func resolve(ctx context.Context, db DB, rows []firstEvent) ([]Enqueued, error) {
	answers := make([]Enqueued, len(rows))
	for n, group := range groups(rows) {
		d := decided
		if n == 0 {
			d = undecided
		}
		rest, err := enqueueAgain(ctx, db, rows, group, d, answers)
		if err != nil {
			return nil, err
		}
		if len(rest) == 0 {
			continue
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
	}
	return answers, nil
}

// decision is what enqueue_again.sql decides about its entries before it writes.
type decision int64

const (
	undecided    decision = iota // the entries have been inserted as far as they can be
	decided                      // an earlier statement has decided about them
	beforeInsert                 // entries whose tasks do not exist are inserted afterwards
)

// enqueueAgainFirst enqueues a row that may be appended to a task, without an attempt to insert it: mostly the task
// exists. It reports false if nothing was written.
func enqueueAgainFirst(ctx context.Context, db DB, row firstEvent) (answer Enqueued, ok bool, err error) {
	const least = 4096 // bytes: no limit of sizes is below it
	if len(row.args) > least || len(row.meta) > least {
		var answers [1]Enqueued
		rest, err := enqueueAgain(ctx, db, []firstEvent{row}, []int{0}, beforeInsert, answers[:])
		return answers[0], err == nil && len(rest) == 0, err
	}
	var position, version, retryAfterMS int64
	var last, policy string
	var full OverloadError
	ok, err = pgquery.Row(ctx, db, enqueueAgainOneSQL, row.againArgs(), &position, &version, &last, &policy,
		&full.Waiting, &full.MaxWaiting, &retryAfterMS)
	switch {
	case err != nil:
		return Enqueued{}, false, explainAgain(err)
	case !ok:
		return Enqueued{}, false, nil
	case position == 0:
		full.Kind, full.Policy = row.key.Kind, OverloadPolicy(policy)
		full.RetryAfter = time.Duration(retryAfterMS) * time.Millisecond
		return Enqueued{}, false, fmt.Errorf("enqueue %s: %w", row.key, &full)
	}
	return row.appended(position, version, last), true, nil
}

// againArgs returns the parameters of enqueue_again_one.sql.
func (r firstEvent) againArgs() []any {
	runAfter, runAt := r.run.params()
	deferAtMost, _ := dueTime{after: r.deferAtMost}.params()
	throttleFor, _ := dueTime{after: r.throttleFor}.params()
	flags := int64(0)
	if r.passIfDead {
		flags |= 1
	}
	if len(r.after) > 0 {
		flags |= 2
	}
	return []any{
		string(r.key.Kind), string(r.key.BizID), string(r.ifExists), pgquery.JSON(r.args), pgquery.JSON(r.meta),
		pgquery.Optional(r.actor), int64(r.dataVersion), int64(r.priority), pgquery.Optional(r.partition),
		pgquery.Optional(runAfter), pgquery.Optional(runAt), pgquery.Optional(timeParam(r.startBy)),
		pgquery.Optional(timeParam(r.finishBy)), pgquery.Optional(deferAtMost), pgquery.Optional(throttleFor),
		pgquery.Optional(r.orderKey), flags,
	}
}

// appended returns the result for a row that was appended to a task, as its last event or behind it.
func (r firstEvent) appended(position, version int64, last string) Enqueued {
	return Enqueued{Key: r.key, New: true, State: EventType(last).State(), Version: Version(version),
		SameArgs: true, Position: Position(position)}
}

// runArchived enqueues the next runs of the archived tasks among the rows that were inserted, if a row may be appended
// to a finished task, and sets their answers.
func runArchived(ctx context.Context, db DB, rows []firstEvent, inserted []int, answers []Enqueued) error {
	var kinds, ids pgarray.Builder
	var again, archived []int
	for _, i := range inserted {
		if rows[i].again() {
			kinds.Add(string(rows[i].key.Kind))
			ids.Add(string(rows[i].key.BizID))
			again = append(again, i)
		}
	}
	if again == nil {
		return nil
	}
	result, err := db.Query(ctx, runsArchivedSQL, kinds.String(), ids.String())
	if err != nil {
		return pgerr.Explain("enqueue: read archived keys", err)
	}
	defer result.Close()
	for result.Next() {
		var n int64
		if err := result.Scan(&n); err != nil {
			return pgerr.Explain("enqueue: read archived keys", err)
		}
		archived = append(archived, again[n-1])
	}
	if err := result.Err(); err != nil {
		return pgerr.Explain("enqueue: read archived keys", err)
	}
	result.Close()
	if archived == nil {
		return nil
	}
	_, err = enqueueAgain(ctx, db, rows, archived, decided, answers)
	return err
}

// groups returns the indices of rows, in groups to resolve one after another. In a group, either all rows of a key may
// be appended to an existing task, or none: rows that may are written before the others are read. Usually there is one
// group.
func groups(rows []firstEvent) [][]int {
	type last struct {
		group int
		again bool
	}
	all := make([][]int, 1)
	keys := make(map[Key]last, len(rows))
	for i, row := range rows {
		l, ok := keys[row.key]
		if ok && l.again != row.again() {
			l.group++
		}
		l.again = row.again()
		keys[row.key] = l
		if l.group == len(all) {
			all = append(all, nil)
		}
		all[l.group] = append(all[l.group], i)
	}
	return all
}

// enqueueAgain enqueues the next runs of the tasks of a group of rows, or replaces their args, as the rows want it, and
// sets their answers. It returns the indices of the group's other rows. Unless they are decided, it first decides about
// all rows: if one of them must not be written, it returns an error and writes nothing.
func enqueueAgain(
	ctx context.Context, db DB, rows []firstEvent, group []int, d decision, answers []Enqueued,
) (rest []int, err error) {
	if !slices.ContainsFunc(rows, firstEvent.again) {
		return group, nil
	}
	listed := group
	if d != decided {
		listed = make([]int, len(rows))
		for i := range rows {
			listed[i] = i
		}
	}
	isInGroup := make([]bool, len(rows))
	for _, i := range group {
		isInGroup[i] = true
	}
	values := append(againParams(rows, listed, isInGroup), int64(d))
	result, err := db.Query(ctx, enqueueAgainSQL, values...)
	if err != nil {
		return nil, explainAgain(err)
	}
	defer result.Close()
	answered := make([]bool, len(rows))
	for result.Next() {
		var n, position, version, retryAfterMS, argsLen, maxArgs, maxMeta int64
		var last, policy string
		var full OverloadError
		if err := result.Scan(&n, &position, &version, &last, &policy, &full.Waiting, &full.MaxWaiting, &retryAfterMS,
			&argsLen, &maxArgs, &maxMeta); err != nil {
			return nil, pgerr.Explain("enqueue again", err)
		}
		i := listed[n-1]
		if position == 0 && policy == "" {
			return nil, fmt.Errorf("enqueue %s: %w", rows[i].key, rows[i].checkLimits(argsLen, maxArgs, maxMeta))
		}
		if position == 0 {
			full.Kind, full.Policy = rows[i].key.Kind, OverloadPolicy(policy)
			full.RetryAfter = time.Duration(retryAfterMS) * time.Millisecond
			return nil, fmt.Errorf("enqueue %s: %w", rows[i].key, &full)
		}
		answered[i] = true
		answers[i] = rows[i].appended(position, version, last)
	}
	if err := result.Err(); err != nil {
		return nil, explainAgain(err)
	}
	for _, i := range group {
		if !answered[i] {
			rest = append(rest, i)
		}
	}
	return rest, nil
}

// againParams returns the first parameters of enqueue_again.sql, for the rows at the indices listed.
func againParams(rows []firstEvent, listed []int, isInGroup []bool) []any {
	var kinds, ids, args, metas, actors, versions, levels, ifExists, isWritten, waits pgarray.Builder
	var runAfters, runAts, startBys, finishBys, partitions, defers, throttles, orderKeys, passes pgarray.Builder
	actors.Empties, ifExists.Empties, partitions.Empties, orderKeys.Empties = true, true, true, true
	for _, i := range listed {
		row := rows[i]
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
		partitions.AddOptional(row.partition)
		orderKeys.AddOptional(row.orderKey)
		passes.Add(strconv.FormatBool(row.passIfDead))
		ifExists.AddOptional(string(row.ifExists))
		isWritten.Add(strconv.FormatBool(row.again() && isInGroup[i]))
		waits.Add(strconv.FormatBool(len(row.after) > 0))
		deferAtMost, _ := dueTime{after: row.deferAtMost}.params()
		defers.AddOptional(deferAtMost)
		throttleFor, _ := dueTime{after: row.throttleFor}.params()
		throttles.AddOptional(throttleFor)
	}
	return []any{
		kinds.String(), ids.String(), args.String(), metas.String(), actors.String(), versions.String(),
		runAfters.String(), runAts.String(), startBys.String(), finishBys.String(), ifExists.String(), levels.String(),
		partitions.String(), isWritten.String(), waits.String(), defers.String(), throttles.String(),
		orderKeys.String(), passes.String(),
	}
}

// explainAgain returns the error of enqueue_again.sql. It wraps an [*OverloadError] if the statement has failed because
// the limit of a kind is reached, and an [*InvalidError] if the waiting task has another order key.
func explainAgain(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == pgerr.InvalidParameterValue &&
		strings.HasPrefix(pg.Message, "taskledger: invalid order_key ") {
		invalid := &InvalidError{Field: "order_key", Rule: "must be the waiting task's: " + pg.Hint}
		return fmt.Errorf("enqueue again: %w: %w", invalid, err)
	}
	if overload := raisedOverload(err); overload != nil {
		return fmt.Errorf("enqueue again: %w: %w", overload, err)
	}
	return pgerr.Explain("enqueue again", err)
}
