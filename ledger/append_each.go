package ledger

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/append_many.sql
	appendManySQL string
	//go:embed sql/append_many_read.sql
	appendManyReadSQL string
	//go:embed sql/heads.sql
	headsSQL string
	//go:embed sql/locked.sql
	lockedSQL string
)

// AppendResult is the result of one request of [AppendEach].
type AppendResult struct {
	Event Event // the zero Event if Err is set
	Err   error // an error of Append
}

// AppendBatch is the recommended maximum of requests in one [AppendEach]. A larger group saves little more per
// request, and locks its keys for longer.
const AppendBatch = 1000

// groupLockTimeout is how long a whole group waits for another transaction that locks one of its keys. Each part of a
// failed group waits half as long, but at least minLockTimeout.
const (
	groupLockTimeout = 200 * time.Millisecond
	minLockTimeout   = 10 * time.Millisecond
)

// maxRaces is how often a whole group is sent again because other transactions appended some of its versions. The next
// statement sees everything that the winner has committed, often a whole group. Only then halves are sent.
const maxRaces = 3

// AppendEach appends each request independently of the others, and commits. A request that fails does not
// affect the others. Results are in the order of the requests, with the errors of [Append].
//
// db must be a pool or an idle connection, not a transaction. A key must occur once: its second request
// gets an [*InvalidError].
//
// All requests are sent in one statement. Requests whose last events a worker has read are sent in one statement
// before it, and another statement returns all conflicts. If another transaction has just appended one of the
// versions, the group is sent again. If the connection is lost, it is sent once more: an event that the first statement
// appended is then a success.
//
// The group fails as a whole if another transaction locks one of its keys for more than 200 ms. Then one statement
// finds all locked keys, in a millisecond for each. Their requests fail with the SQLSTATE lock_not_available, and the
// others are sent again. If the server refuses a row for another reason, each half of the group is sent in a statement
// of its own, and so on: one such row among n costs about 2 log2 n statements.
func AppendEach(ctx context.Context, db DB, requests []AppendRequest) []AppendResult {
	g := &requestGroup{db: db, requests: requests, results: make([]AppendResult, len(requests))}
	order := g.sortRequests()
	err := g.insertRead(ctx, order, groupLockTimeout)
	order = g.missing(order)
	if err == nil {
		err = g.insert(ctx, order, groupLockTimeout)
	}
	for race := 0; race < maxRaces && len(order) > 1 && pgerr.Is(err, pgerr.UniqueViolation); race++ {
		err = g.insert(ctx, order, groupLockTimeout)
	}
	var connect *pgconn.ConnectError // nothing was sent
	if pgerr.IsConnectionLost(err) && !errors.As(err, &connect) {
		g.requests = slices.Clone(requests)
		for i := range g.requests {
			g.requests[i].resent = true
		}
		err = g.insert(ctx, order, groupLockTimeout)
	}
	g.resolve(ctx, order, groupLockTimeout, err)
	return g.results
}

// requestGroup contains the requests of one AppendEach. A result contains an event if its request was appended.
type requestGroup struct {
	db       DB
	requests []AppendRequest
	results  []AppendResult
}

// sortRequests returns the indices of the valid requests, sorted by key. It sets the errors of the others.
func (g *requestGroup) sortRequests() []int {
	order := make([]int, 0, len(g.requests))
	for i := range g.requests {
		r := &g.requests[i]
		if err := r.validate(); err != nil {
			g.results[i].Err = fmt.Errorf("append to %s: %w", r.Key, err)
			continue
		}
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(g.requests[a].Key.Compare(g.requests[b].Key), a-b) })
	unique := order[:0]
	for _, i := range order {
		k := g.requests[i].Key
		if len(unique) > 0 && g.requests[unique[len(unique)-1]].Key == k {
			err := &InvalidError{Field: "key", Value: k.String(), Rule: "must occur once in a group"}
			g.results[i].Err = fmt.Errorf("append to %s: %w", k, err)
			continue
		}
		unique = append(unique, i)
	}
	return unique
}

// insertRead appends the requests in order whose last events were read before, and sets their events. If the database
// may have lost some of these events since, or if it returns an error, it sets none. It leaves out requests that
// [Transitions] refuses, requests with a due time, and requests that may line up a task.
func (g *requestGroup) insertRead(ctx context.Context, order []int, lockTimeout time.Duration) error {
	var incarnation string
	var read []int
	for _, i := range order {
		r := &g.requests[i]
		_, ok := r.attemptAfterRead()
		linesUp := r.last.OrderKey != "" && r.Type == EventReleased
		if !ok || linesUp || !(dueTime{r.In, r.At}).isZero() || incarnation != "" && r.last.Incarnation != incarnation {
			continue
		}
		if read == nil {
			incarnation, read = r.last.Incarnation, make([]int, 0, len(order))
		}
		read = append(read, i)
	}
	if len(read) == 0 {
		return nil
	}
	var l requestList
	var shards, partitions, orderKeys pgarray.Builder // of requests
	var attempts, priorities pgarray.Builder          // of rules
	partitions.Empties, orderKeys.Empties = true, true
	lowest := g.requests[read[0]].last.Position
	l.grow(g, read)
	for _, i := range read {
		r := &g.requests[i]
		lowest = min(lowest, r.last.Position)
		attempt, _ := r.attemptAfterRead()
		shards.AddInt(int64(r.last.Shard))
		partitions.AddOptional(r.last.Partition)
		orderKeys.AddOptional(r.last.OrderKey)
		if l.add(r, attempt) {
			attempts.AddInt(int64(attempt))
			priorities.AddOptionalInt(int64(r.last.Priority))
		}
	}
	rows, err := g.db.Query(ctx, appendManyReadSQL,
		l.rules.String(), l.ids.String(), l.expected.String(), shards.String(), l.data.String(), l.metas.String(),
		l.kinds.String(), l.types.String(), l.actors.String(), attempts.String(),
		milliseconds(lockTimeout), incarnation, priorities.String(), partitions.String(), lowest,
		orderKeys.String())
	if err != nil {
		return err
	}
	var e Event
	var login string
	var name *string // null after the first row
	n := -1          // events so far
	_, err = pgx.ForEachRow(rows, []any{(*int64)(&e.Position), pgquery.Micros(&e.RecordedAt), &name}, func() error {
		if n++; n == 0 {
			login = *name
			return nil
		}
		if n > len(read) {
			return errAppendedRows
		}
		r := &g.requests[read[n-1]]
		e.Key, e.Version, e.Type, e.Shard = r.Key, r.Expected+1, r.Type, Shard(r.last.Shard)
		e.Attempt, _ = r.attemptAfterRead()
		e.Priority, e.Partition = Priority(r.last.Priority), r.last.Partition
		e.OrderKey = r.last.OrderKey
		e.Actor, e.Login = cmp.Or(r.Actor, login), login
		e.DataVersion, e.Data, e.Meta = 1, r.Data, r.Meta
		g.results[read[n-1]].Event = e
		return nil
	})
	if err == nil && 0 < n && n < len(read) {
		err = errAppendedRows
	}
	if err != nil {
		for _, i := range read {
			g.results[i].Event = Event{}
		}
	}
	return err
}

var errAppendedRows error = &CorruptError{
	What: "result of an append", Err: errors.New("it does not have one row for each event"),
}

// missing returns the requests in order that were not appended.
func (g *requestGroup) missing(order []int) []int {
	return slices.DeleteFunc(slices.Clone(order), func(i int) bool { return g.results[i].Event.Version != 0 })
}

// resolve sets the results of the requests in order; err is the error of the statement that sent them. Requests that
// failed together are sent again in parts.
func (g *requestGroup) resolve(ctx context.Context, order []int, lockTimeout time.Duration, err error) {
	switch {
	case err == nil, len(order) == 1 && isNotAppended(err):
		g.resolveConflicts(ctx, order)
	case len(order) > 1 && isRowError(err):
		lockTimeout = max(lockTimeout/2, minLockTimeout)
		for _, part := range g.parts(ctx, order, err) {
			g.resolve(ctx, part, lockTimeout, g.insert(ctx, part, lockTimeout))
		}
	default:
		g.fail(order, err)
	}
}

// fail sets err as the error of the requests in order.
func (g *requestGroup) fail(order []int, err error) {
	for _, i := range order {
		g.results[i].Err = pgerr.Explain("append to "+g.requests[i].Key.String(), err)
	}
}

// parts returns the parts in which requests that failed together are sent again: the requests whose keys are not
// locked, or, if none is locked, halves. It sets the results of the others. If a limit refuses a start, ends are sent
// before starts: they wait for no limit, and give permits back.
func (g *requestGroup) parts(ctx context.Context, order []int, err error) [][]int {
	if pgerr.Is(err, pgerr.LockNotAvailable) {
		if locked := g.locked(ctx, order); len(locked) > 0 {
			g.fail(locked, err)
			isLocked := func(i int) bool { return slices.Contains(locked, i) }
			return [][]int{slices.DeleteFunc(slices.Clone(order), isLocked)}
		}
	}
	if pgerr.Is(err, pgerr.StartLimit) {
		isStart := func(i int) bool { return g.requests[i].Type == EventStarted }
		ends := slices.DeleteFunc(slices.Clone(order), isStart)
		if len(ends) > 0 && len(ends) < len(order) {
			return [][]int{ends, slices.DeleteFunc(slices.Clone(order), func(i int) bool { return !isStart(i) })}
		}
	}
	return [][]int{order[:len(order)/2], order[len(order)/2:]}
}

// locked returns the requests in order whose keys other transactions lock. If its statement fails, it returns none.
func (g *requestGroup) locked(ctx context.Context, order []int) []int {
	var kinds, ids, expected, types, actors pgarray.Builder
	actors.Empties = true
	for _, i := range order {
		r := &g.requests[i]
		kinds.Add(string(r.Key.Kind))
		ids.Add(string(r.Key.BizID))
		expected.AddInt(int64(r.Expected))
		types.Add(string(r.Type))
		actors.AddOptional(r.Actor)
	}
	args := []any{kinds.String(), ids.String(), expected.String(), types.String(), actors.String()}
	rows, _ := g.db.Query(ctx, lockedSQL, args...) // ForEachRow returns its error
	var locked []int
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
		locked = append(locked, order[n-1])
		return nil
	})
	if err != nil {
		return nil
	}
	return locked
}

// resolveConflicts sets the results of the requests in order that were not appended. One statement reads the heads of
// all; requests that these do not explain are resolved one by one.
func (g *requestGroup) resolveConflicts(ctx context.Context, order []int) {
	order = g.missing(order)
	var kinds, ids pgarray.Builder
	for _, i := range order {
		kinds.Add(string(g.requests[i].Key.Kind))
		ids.Add(string(g.requests[i].Key.BizID))
	}
	if len(order) > 1 {
		rows, _ := g.db.Query(ctx, headsSQL, kinds.String(), ids.String()) // ForEachRow returns its error
		var n, version int64
		var last string
		_, err := pgx.ForEachRow(rows, []any{&n, &version, &last}, func() error {
			r := g.requests[order[n-1]]
			if found := Version(version); found != r.Expected && !(r.resent && found > r.Expected) {
				err := &ConflictError{Key: r.Key, Expected: r.Expected, Found: found, State: EventType(last).State()}
				g.results[order[n-1]].Err = fmt.Errorf("append to %s: %w", r.Key, err)
			}
			return nil
		})
		if err != nil {
			g.fail(order, err)
		}
	}
	for _, i := range order {
		if g.results[i].Err == nil {
			g.results[i].Event, g.results[i].Err = resolveAppend(ctx, g.db, g.requests[i])
		}
	}
}

// isRowError reports whether one row of a statement may have caused err, so that the server may accept the other rows.
// A policy of row-level security refuses single rows; for a role without the right to insert it refuses all.
func isRowError(err error) bool {
	if pgerr.Is(err, pgerr.InsufficientPrivilege) {
		return true
	}
	switch pgerr.Class(err) {
	case "", pgerr.ClassConnectionException, pgerr.ClassInvalidTransactionState, pgerr.ClassInvalidCatalogName,
		pgerr.ClassSyntaxErrorOrAccessRule, pgerr.ClassInsufficientResources, pgerr.ClassSystemError,
		pgerr.ClassInternalError:
		return false
	case pgerr.ClassOperatorIntervention:
		return pgerr.Is(err, pgerr.QueryCanceled) // a statement_timeout that is shorter than lockTimeout
	}
	return true
}

// insert sends the requests in order and sets the events that were inserted. If it returns an error, it sets no event.
func (g *requestGroup) insert(ctx context.Context, order []int, lockTimeout time.Duration) error {
	if len(order) == 0 {
		return nil
	}
	rows, err := g.db.Query(ctx, appendManySQL, g.args(order, lockTimeout)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var kind, id string
	var e Event
	var data *string
	columns := append(append([]any{(*pgquery.Repeated)(&kind), (*pgquery.Repeated)(&id)}, e.scanTargets()...), &data)
	for next := 0; err == nil && rows.Next(); next++ {
		if next < len(order) { // the row probably belongs to this request
			id = string(g.requests[order[next]].Key.BizID)
		}
		e = Event{Actor: e.Actor, Login: e.Login}
		if err = rows.Scan(columns...); err != nil {
			break
		}
		if next, err = g.find(order, next, Key{Kind(kind), BizID(id)}); err != nil {
			break
		}
		r := &g.requests[order[next]]
		e.Key, e.DataVersion, e.Data, e.Meta = r.Key, 1, r.Data, r.Meta
		e.setStored(data)
		g.results[order[next]].Event = e
	}
	if err == nil {
		err = rows.Err()
	}
	if err != nil {
		for _, i := range order {
			g.results[i].Event = Event{}
		}
	}
	return err
}

// find returns the index in order of the request for k. It tries next first, which is right unless an earlier request
// was not appended.
func (g *requestGroup) find(order []int, next int, k Key) (int, error) {
	if next < len(order) && g.requests[order[next]].Key == k {
		return next, nil
	}
	at, ok := slices.BinarySearchFunc(order, k, func(i int, k Key) int { return g.requests[i].Key.Compare(k) })
	if !ok {
		return 0, &CorruptError{What: "result of an append", Err: fmt.Errorf("no request for the returned key %s", k)}
	}
	return at, nil
}

// requestRule is the part that many requests of a group share. It is sent once.
type requestRule struct {
	kind      Kind
	eventType EventType
	actor     string
	attempt   Attempt // of the new events, if the last events were read; else 0
	priority  int16   // of the last events that were read; else 0
}

// requestList contains the common parameters of append_many.sql and append_many_read.sql.
type requestList struct {
	rules, ids, expected, data, metas pgarray.Builder // of the requests
	kinds, types, actors              pgarray.Builder // of the rules
	numbers                           map[requestRule]int64
	last                              requestRule // of the request that was added last
	rule                              int64       // its number
}

// grow makes room for requests.
func (l *requestList) grow(g *requestGroup, order []int) {
	idBytes, dataBytes := 0, 0
	for _, i := range order {
		idBytes += len(g.requests[i].Key.BizID)
		dataBytes += len(g.requests[i].Data)
	}
	l.rules.Grow(len(order), 0)
	l.expected.Grow(len(order), 0)
	l.ids.Grow(len(order), idBytes)
	l.data.Grow(len(order), dataBytes+dataBytes/4) // JSON has many quotes to escape
	l.actors.Empties = true
	l.numbers = make(map[requestRule]int64)
}

// add adds a request. It reports whether the request is the first with its rule.
func (l *requestList) add(r *AppendRequest, attempt Attempt) (isNewRule bool) {
	s := requestRule{kind: r.Key.Kind, eventType: r.Type, actor: r.Actor, attempt: attempt}
	if attempt != 0 {
		s.priority = r.last.Priority
	}
	if l.rule == 0 || s != l.last { // most requests share the rule of the request before
		l.last, l.rule = s, l.numbers[s]
	}
	if isNewRule = l.rule == 0; isNewRule {
		l.rule = int64(len(l.numbers) + 1)
		l.numbers[s] = l.rule
		l.kinds.Add(string(r.Key.Kind))
		l.types.Add(string(r.Type))
		l.actors.AddOptional(r.Actor)
	}
	l.rules.AddInt(l.rule)
	l.ids.Add(string(r.Key.BizID))
	l.expected.AddInt(int64(r.Expected))
	l.data.AddOptionalBytes(r.Data)
	l.metas.AddOptionalBytes(r.Meta)
	return isNewRule
}

// args returns the parameters of append_many.sql.
func (g *requestGroup) args(order []int, lockTimeout time.Duration) []any {
	var l requestList
	var predecessors, attemptEnds pgarray.Builder // of the rules
	// Of the requests with a due time:
	var dueNumbers, afters, ats, priorities pgarray.Builder
	l.grow(g, order)
	for n, i := range order {
		r := &g.requests[i]
		if l.add(r, 0) {
			all, ends := r.Type.predecessors()
			predecessors.Add(strings.Join(all, " "))
			attemptEnds.Add(strings.Join(ends, " "))
		}
		if d := (dueTime{r.In, r.At}); !d.isZero() {
			after, at := d.params()
			dueNumbers.AddInt(int64(n + 1))
			afters.AddOptional(after)
			ats.AddOptional(at)
			priorities.AddOptionalInt(int64(r.Priority))
		}
	}
	return []any{
		l.rules.String(), l.ids.String(), l.expected.String(), l.data.String(), l.metas.String(),
		l.kinds.String(), l.types.String(), l.actors.String(), predecessors.String(), attemptEnds.String(),
		dueNumbers.String(), afters.String(), ats.String(), milliseconds(lockTimeout), priorities.String(),
	}
}

// milliseconds returns a setting of the server.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
