package workers

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/find_dead.sql
	findDeadSQL string
	//go:embed sql/find_aside.sql
	findAsideSQL string
	//go:embed sql/find.sql
	findSQL string
)

// Filter says which tasks an [Operator] means. It looks at the projection, which may be a moment
// behind: a task that has moved on since is skipped.
type Filter struct {
	// Kind of the tasks. Empty: all.
	Kind ledger.Kind
	// State they are in. Empty: dead for a release, and for the others all in which they can be
	// carried out.
	State ledger.State
	// Fingerprint of the error that they are dead of. Empty: any.
	Fingerprint string
	// OlderThan is how long at least nothing has happened to them, by the database's clock.
	OlderThan time.Duration
	// Limit is how many at most, in no promised order. 0: all.
	Limit int
}

// query is a filter, completed for an order.
type query struct {
	Filter
	states []ledger.State
}

// complete checks a filter, and completes it.
func (f Filter) complete(r order) (query, error) {
	allowed := r.states()
	invalid := func(field, value, rule string) (query, error) {
		return query{}, &ledger.InvalidError{Field: field, Value: value, Rule: rule}
	}
	switch {
	case f.Kind != "" && f.Kind.Validate() != nil:
		return query{}, f.Kind.Validate()
	case f.State != "" && !slices.Contains(allowed, f.State):
		return invalid("state", string(f.State), "must be one of "+joinStates(allowed))
	case f.Fingerprint != "" && f.State != "" && f.State != ledger.StateDead:
		return invalid("fingerprint", f.Fingerprint, "is only of dead tasks")
	case f.Fingerprint != "" && !slices.Contains(allowed, ledger.StateDead):
		return invalid("fingerprint", f.Fingerprint, "is of dead tasks, to which this cannot be done")
	case f.OlderThan < 0:
		return invalid("older than", f.OlderThan.String(), "must not be negative")
	case f.Limit < 0:
		return invalid("limit", fmt.Sprint(f.Limit), "must not be negative")
	}
	q := query{f, allowed}
	switch {
	case f.State != "":
		q.states = []ledger.State{f.State}
	case r.event == ledger.EventReleased:
		q.states = []ledger.State{ledger.StateDead}
	}
	return q, nil
}

// found is a task that a filter means.
type found struct {
	key     ledger.Key
	version ledger.Version
	state   ledger.State
}

// place is where a search goes on: behind this task.
type place struct{ fingerprint, kind, bizID string }

// stretch is how many rows one statement of a search looks at.
const stretch = 5000

// find searches the next stretch behind a place. more is false at the end of all tasks.
func (o *Operator) find(ctx context.Context, q query, after place) (tasks []found, last place, more bool, err error) {
	aside := true
	for _, s := range q.states {
		aside = aside && s.Exceptional()
	}
	sql := findSQL
	switch {
	case slices.Equal(q.states, []ledger.State{ledger.StateDead}):
		sql = findDeadSQL
	case aside:
		sql = findAsideSQL
	}
	rows, err := o.config.DB.Query(ctx, sql, string(q.Kind), q.Fingerprint, pgarray.Of(q.states...), q.OlderThan.Microseconds(),
		after.fingerprint, after.kind, after.bizID, int64(stretch))
	if err != nil {
		return nil, after, false, pgerr.Explain("find tasks", err)
	}
	defer rows.Close()
	for rows.Next() {
		var f found
		var matches bool
		var walked int64
		if err := rows.Scan(&last.fingerprint, &last.kind, &last.bizID, (*int32)(&f.version), (*string)(&f.state), &matches, &walked); err != nil {
			return nil, after, false, pgerr.Explain("find tasks", err)
		}
		more = walked == stretch
		if matches {
			f.key = ledger.Key{Kind: ledger.Kind(last.kind), BizID: ledger.BizID(last.bizID)}
			tasks = append(tasks, f)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, after, false, pgerr.Explain("find tasks", err)
	}
	return tasks, last, more, nil
}

func joinStates(states []ledger.State) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
