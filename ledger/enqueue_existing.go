package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/existing.sql
var existingSQL string

// resolveExisting returns the results of rows whose insert did nothing, in their order. It needs a statement of its
// own, because the winner of a race is visible only to a snapshot taken after its commit.
func resolveExisting(ctx context.Context, db DB, rows []firstEvent) ([]Enqueued, error) {
	answers, discard, err := readExisting(ctx, db, rows)
	if err != nil || len(discard) == 0 {
		return answers, err
	}
	order := make([]int, len(discard))
	for j, d := range discard {
		order[j] = d.row
	}
	added, err := insertMany(ctx, db, rows, order, insertOptions{mayDiscard: true})
	if err != nil {
		return nil, err
	}
	var rest []int // not inserted: the rows exist by now, or the limit has changed
	var restRows []firstEvent
	for _, d := range discard {
		i := d.row
		answer, ok := added[rows[i].key]
		if !ok {
			rest, restRows = append(rest, i), append(restRows, rows[i])
			continue
		}
		answers[i] = answer
		delete(added, rows[i].key)
	}
	if rest == nil {
		return answers, nil
	}
	restAnswers, err := resolveExisting(ctx, db, restRows)
	if err != nil {
		return nil, err
	}
	for j, i := range rest {
		answers[i] = restAnswers[j]
	}
	return answers, nil
}

// readExisting returns the results of the rows whose task exists, and the rows that must be discarded.
func readExisting(ctx context.Context, db DB, rows []firstEvent) (answers []Enqueued, discard []overflow, err error) {
	var kinds, ids, args pgarray.Builder
	for _, row := range rows {
		kinds.Add(string(row.key.Kind))
		ids.Add(string(row.key.BizID))
		args.AddOptional(string(row.args))
	}
	result, err := db.Query(ctx, existingSQL, kinds.String(), ids.String(), args.String())
	if err != nil {
		return nil, nil, pgerr.Explain("enqueue: read existing task", err)
	}
	defer result.Close()
	answers = make([]Enqueued, len(rows))
	refusals := make([]*refusal, len(rows)) // of rows whose task is unknown
	for i := 0; result.Next(); i++ {
		var position, version *int64
		var eventType *string
		var same bool
		var stored *string // the args, unless they are equal or another login enqueued the task
		var r refusal
		if err := result.Scan(&position, &version, &eventType, &same, &stored, &r.argsLen, &r.maxArgs, &r.maxMeta,
			&r.policy, &r.waiting, &r.maxWaiting, &r.scheduled, &r.retryAfterMS, &r.mayBeUnseen); err != nil {
			return nil, nil, pgerr.Explain("enqueue: read existing task", err)
		}
		if version != nil {
			answers[i] = Enqueued{
				Key: rows[i].key, State: EventType(*eventType).State(), Version: Version(*version),
				SameArgs: same, Position: Position(*position),
			}
			if stored != nil {
				answers[i].compareArgs(rows[i], json.RawMessage(*stored))
			}
			continue
		}
		refusals[i] = &r
	}
	if err := result.Err(); err != nil {
		return nil, nil, pgerr.Explain("enqueue: read existing task", err)
	}
	result.Close()
	if err := answerArchived(ctx, db, rows, answers, refusals); err != nil {
		return nil, nil, err
	}
	var unseen error
	for i, r := range refusals {
		if r == nil {
			continue
		}
		err := r.explain(rows[i])
		if overload, ok := errors.AsType[*OverloadError](err); ok && overload.Policy == Discard {
			discard = append(discard, overflow{i, overload})
		} else if errors.Is(err, ErrRetryTransaction) { // unless the error of another row explains the insert of none
			unseen = err
		} else {
			return nil, nil, err
		}
	}
	return answers, discard, unseen
}

// answerArchived sets the answers of the rows that look into the archive and whose tasks are archived, unless they were
// run again since: a repeated key has a discarded version after the archived one at most.
func answerArchived(ctx context.Context, db DB, rows []firstEvent, answers []Enqueued, refusals []*refusal) error {
	var keys []Key
	var of []int
	for i, row := range rows {
		if row.checkArchive && !answers[i].New {
			keys, of = append(keys, row.key), append(of, i)
		}
	}
	if keys == nil {
		return nil
	}
	archived, err := Archived(ctx, db, keys...)
	if err != nil {
		return err
	}
	for n, a := range archived {
		if i := of[n]; a != nil && answers[i].Version <= a.Version+1 {
			answers[i] = Enqueued{Key: a.Key, State: a.State, Version: a.Version, SameArgs: true, Archived: true}
			refusals[i] = nil
		}
	}
	return nil
}

// compareArgs sets SameArgs and Difference for a task whose args differ from row's.
func (e *Enqueued) compareArgs(row firstEvent, stored json.RawMessage) {
	if row.isSame != nil {
		e.SameArgs = row.isSame(stored, row.args)
	}
	if !e.SameArgs {
		e.Difference = argsDifference(stored, row.args)
	}
}

// refusal contains the possible reasons why a task was not inserted although it does not exist.
type refusal struct {
	argsLen, maxArgs, maxMeta                    int64
	policy                                       string
	waiting, maxWaiting, scheduled, retryAfterMS int64
	mayBeUnseen                                  bool
}

// overflow is a row that must be discarded, and the reason.
type overflow struct {
	row int
	err *OverloadError
}

// explain returns the reason as an error. It wraps an *OverloadError with policy Discard if the task must be discarded.
func (r refusal) explain(row firstEvent) error {
	if row.isLater() {
		r.waiting += r.scheduled
	}
	overload := &OverloadError{
		Kind: row.key.Kind, Waiting: r.waiting, MaxWaiting: r.maxWaiting,
		RetryAfter: time.Duration(r.retryAfterMS) * time.Millisecond, Policy: OverloadPolicy(r.policy),
	}
	// If no task can be invisible, the limit is the reason, even if fewer tasks wait by now.
	limited := r.policy != "" && (!r.mayBeUnseen || r.waiting >= r.maxWaiting)
	switch err := row.checkLimits(r.argsLen, r.maxArgs, r.maxMeta); {
	case err != nil:
		return fmt.Errorf("enqueue %s: %w", row.key, err)
	case limited:
		return fmt.Errorf("enqueue %s: %w", row.key, overload)
	}
	return fmt.Errorf("enqueue %s: %w", row.key, ErrRetryTransaction)
}
