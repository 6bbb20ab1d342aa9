package ledger

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/existing.sql
var existingSQL string

// existing answers for keys, in their order, whose insert did nothing. It is a statement of its own
// because the winner of a race is visible only to a snapshot taken after it committed.
func existing(ctx context.Context, db DB, rows []firstEvent) ([]Enqueued, error) {
	answers, discard, err := readExisting(ctx, db, rows)
	if err != nil || len(discard) == 0 {
		return answers, err
	}
	discarded := make([]firstEvent, len(discard))
	for j, d := range discard {
		discarded[j] = rows[d.row]
	}
	added, err := enqueueDiscarded(ctx, db, discarded)
	if err != nil {
		return nil, err
	}
	var late []int // somebody else was quicker, or the key stands there twice
	var lateRows []firstEvent
	for _, d := range discard {
		i := d.row
		answer, ok := added[rows[i].key]
		if !ok {
			late, lateRows = append(late, i), append(lateRows, rows[i])
			continue
		}
		answers[i] = answer
		delete(added, rows[i].key)
	}
	if late == nil {
		return answers, nil
	}
	found, err := existing(ctx, db, lateRows)
	if err != nil {
		return nil, err
	}
	for j, i := range late {
		answers[i] = found[j]
	}
	return answers, nil
}

// readExisting returns answers for the keys that exist, and which rows are to be discarded.
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
	var unseen error
	for i := 0; result.Next(); i++ {
		var position, version *int64
		var eventType *string
		var same bool
		var m missing
		if err := result.Scan(&position, &version, &eventType, &same, &m.argsLen, &m.maxArgs, &m.maxMeta,
			&m.policy, &m.waiting, &m.maxWaiting, &m.retryAfterMS, &m.mayBeUnseen); err != nil {
			return nil, nil, pgerr.Explain("enqueue: read existing task", err)
		}
		if version != nil {
			answers[i] = Enqueued{
				Key: rows[i].key, State: EventType(*eventType).State(), Version: Version(*version),
				SameArgs: same, Position: Position(*position),
			}
			continue
		}
		err := m.explain(rows[i])
		if why, ok := errors.AsType[*OverloadError](err); ok && why.Policy == Discard {
			discard = append(discard, overflow{i, why})
		} else if errors.Is(err, ErrRetryTransaction) { // unless another entry says why none was inserted
			unseen = err
		} else {
			return nil, nil, err
		}
	}
	if err := result.Err(); err != nil {
		return nil, nil, pgerr.Explain("enqueue: read existing task", err)
	}
	return answers, discard, unseen
}

// missing is what may be the reason that a task was not inserted and does not exist either.
type missing struct {
	argsLen, maxArgs, maxMeta         int64
	policy                            string
	waiting, maxWaiting, retryAfterMS int64
	mayBeUnseen                       bool
}

// overflow is a row to be discarded, and why.
type overflow struct {
	row int
	why *OverloadError
}

// explain returns the reason. It wraps an OverloadError with policy Discard if the task is to be discarded.
func (m missing) explain(row firstEvent) error {
	overload := &OverloadError{
		Kind: row.key.Kind, Waiting: m.waiting, MaxWaiting: m.maxWaiting,
		RetryAfter: time.Duration(m.retryAfterMS) * time.Millisecond, Policy: OverloadPolicy(m.policy),
	}
	// Where nothing can be unseen it was the limit, also if fewer wait by now.
	limited := m.policy != "" && (!m.mayBeUnseen || m.waiting >= m.maxWaiting && row.run.isZero())
	switch err := row.overLimit(m.argsLen, m.maxArgs, m.maxMeta); {
	case err != nil:
		return fmt.Errorf("enqueue %s: %w", row.key, err)
	case limited:
		return fmt.Errorf("enqueue %s: %w", row.key, overload)
	}
	return fmt.Errorf("enqueue %s: %w", row.key, ErrRetryTransaction)
}
