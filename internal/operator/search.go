package operator

import (
	"context"
	_ "embed"
	"errors"
	"slices"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/find_dead.sql
	findDeadSQL string
	//go:embed sql/find_exceptional.sql
	findExceptionalSQL string
	//go:embed sql/find_line.sql
	findLineSQL string
	//go:embed sql/find.sql
	findSQL string
)

// searchPage is how many rows of the projection one statement reads.
const searchPage = 5000

// search pages through the tasks that match a filter. It is for one goroutine.
type search struct {
	filter Filter
	states []ledger.State
	last   struct{ fingerprint, kind, bizID string } // the last row that was read; of a line: place, kind and biz_id
	isOn   bool                                      // a row was read
}

// match is a task that matches a filter.
type match struct {
	key     ledger.Key
	version ledger.Version
	state   ledger.State
}

// sql returns the statement whose index contains the fewest other tasks.
func (s *search) sql() string {
	switch {
	case s.filter.OrderKey != "":
		return findLineSQL
	case slices.Equal(s.states, []ledger.State{ledger.StateDead}):
		return findDeadSQL
	case !slices.ContainsFunc(s.states, func(state ledger.State) bool { return !state.Exceptional() }):
		return findExceptionalSQL
	}
	return findSQL
}

// next returns the matches in the next page, and whether there may be more pages.
func (s *search) next(ctx context.Context, db ledger.DB) (tasks []match, hasMore bool, err error) {
	f := s.filter
	from := s.last.bizID // of the first row, '' is valid
	if s.isOn {
		from += "\x01" // the next text that PostgreSQL can store, in the order of its bytes
	}
	args := []any{string(f.Kind), f.Fingerprint, pgarray.Of(s.states...),
		f.OlderThan.Microseconds(), s.last.fingerprint, s.last.kind, from, int64(searchPage)}
	if f.OrderKey != "" {
		args = append(args, f.OrderKey)
	}
	rows, err := db.Query(ctx, s.sql(), args...)
	if err != nil {
		return nil, false, pgerr.Explain("find tasks", err)
	}
	defer rows.Close()
	for rows.Next() {
		var m match
		var matches bool
		var read int64
		err := rows.Scan(&s.last.fingerprint, &s.last.kind, &s.last.bizID,
			(*int32)(&m.version), (*string)(&m.state), &matches, &read)
		if err != nil {
			return nil, false, pgerr.Explain("find tasks", err)
		}
		s.isOn, hasMore = true, read == searchPage
		if matches {
			m.key = ledger.Key{Kind: ledger.Kind(s.last.kind), BizID: ledger.BizID(s.last.bizID)}
			tasks = append(tasks, m)
		}
	}
	return tasks, hasMore, pgerr.Explain("find tasks", rows.Err())
}

// stillMatches reports whether a task may match the filter after an append to it has failed with a conflict or a lock.
// It updates the task.
func (s *search) stillMatches(t *match, err error) bool {
	var conflict *ledger.ConflictError
	if !errors.As(err, &conflict) {
		return pgerr.Is(err, pgerr.LockNotAvailable)
	}
	t.version, t.state = conflict.Found, conflict.State
	needsOldEvent := s.filter.OlderThan > 0 || s.filter.Fingerprint != "" // a new event changes both
	return !needsOldEvent && slices.Contains(s.states, t.state)
}
