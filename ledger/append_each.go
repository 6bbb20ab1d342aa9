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

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/append_many.sql
var appendManySQL string

// AppendResult is the outcome of one request of a group.
type AppendResult struct {
	Event Event
	Err   error // nil, or as Append would have returned
}

// AppendBatch is how many requests a caller with many of them should give to one [AppendEach]: a larger group
// is hardly cheaper for each request, and holds its keys for longer.
const AppendBatch = 1000

// A group waits for groupPatience at most for somebody's open transaction that holds one of its
// keys. When that has passed, somebody holds one for longer than a moment, and its parts wait less.
const (
	groupPatience = 200 * time.Millisecond
	minPatience   = 10 * time.Millisecond
)

// AppendEach appends every request in its own right, as one group in one statement where that
// works: one that conflicts does not harm the others. If the group as a whole fails by one of its
// keys, because somebody's open transaction holds it longer than a moment or has just taken the
// version, it is halved, and what fails again is halved again, so that one such key among n costs
// about 2 log2 n statements. If the connection is lost, and with it the answer, the group is sent
// once more, as [AppendRequest].Resent.
//
// A key may occur once; the second is refused. db must not be in a transaction (a pool, or an
// idle connection), since each attempt commits by itself. Results are in the order of the requests.
func AppendEach(ctx context.Context, db DB, requests []AppendRequest) []AppendResult {
	g := &group{db: db, requests: requests, results: make([]AppendResult, len(requests))}
	order := g.sorted()
	err := g.insert(ctx, order, groupPatience)
	var connect *pgconn.ConnectError // after which nothing was sent
	if pgerr.IsConnectionLost(err) && !errors.As(err, &connect) {
		g.requests = slices.Clone(requests)
		for i := range g.requests {
			g.requests[i].Resent = true
		}
		err = g.insert(ctx, order, groupPatience)
	}
	g.conclude(ctx, order, groupPatience, err)
	return g.results
}

// group is the requests of one AppendEach. The result of one that was appended has its event.
type group struct {
	db       DB
	requests []AppendRequest
	results  []AppendResult
}

// sorted returns the requests to be sent, by key. The others have their error.
func (g *group) sorted() []int {
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
	once := order[:0]
	for _, i := range order {
		k := g.requests[i].Key
		if len(once) > 0 && g.requests[once[len(once)-1]].Key == k {
			g.results[i].Err = fmt.Errorf("append to %s: %w", k, &InvalidError{Field: "key", Value: k.String(), Rule: "may occur once in a group"})
			continue
		}
		once = append(once, i)
	}
	return once
}

// conclude fills in the results of the requests in order, after they were sent; those that failed
// together are sent again in halves.
func (g *group) conclude(ctx context.Context, order []int, patience time.Duration, err error) {
	switch {
	case err == nil, len(order) == 1 && isNotAppended(err):
		for _, i := range order {
			if g.results[i].Event.Version == 0 {
				g.results[i].Event, g.results[i].Err = notAppended(ctx, g.db, g.requests[i])
			}
		}
	case len(order) > 1 && isOfOneRow(err):
		patience = max(patience/2, minPatience)
		for _, half := range [][]int{order[:len(order)/2], order[len(order)/2:]} {
			g.conclude(ctx, half, patience, g.insert(ctx, half, patience))
		}
	default:
		for _, i := range order {
			g.results[i].Err = pgerr.Explain("append to "+g.requests[i].Key.String(), err)
		}
	}
}

// isOfOneRow reports whether the other rows of a statement that failed may well be accepted: the
// server is there, and willing, and it is not the statement.
func isOfOneRow(err error) bool {
	switch pgerr.Class(err) {
	case "", pgerr.ClassConnectionException, pgerr.ClassInvalidTransactionState, pgerr.ClassInvalidCatalogName, pgerr.ClassSyntaxErrorOrAccessRule,
		pgerr.ClassInsufficientResources, pgerr.ClassSystemError, pgerr.ClassInternalError:
		return false
	case pgerr.ClassOperatorIntervention:
		return pgerr.Is(err, pgerr.QueryCanceled) // a statement_timeout shorter than our patience, while it waited for a key
	}
	return true
}

// insert sends the requests in order and takes the events that were inserted. If it returns an error,
// there are none.
func (g *group) insert(ctx context.Context, order []int, patience time.Duration) error {
	if len(order) == 0 {
		return nil
	}
	rows, err := g.db.Query(ctx, appendManySQL, g.args(order, patience)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var kind, id string
	var e Event
	var data *string
	columns := append(append([]any{&kind, &id}, e.returned()...), &data)
	for next := 0; err == nil && rows.Next(); next++ {
		e = Event{}
		if err = rows.Scan(columns...); err != nil {
			break
		}
		if next, err = g.find(order, next, Key{Kind(kind), BizID(id)}); err != nil {
			break
		}
		r := &g.requests[order[next]]
		e.Key, e.Type, e.Data, e.Meta = r.Key, r.Type, r.Data, r.Meta
		e.stored(data)
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

// find returns where in order the request for k stands: at next, if everything is appended.
func (g *group) find(order []int, next int, k Key) (int, error) {
	if next < len(order) && g.requests[order[next]].Key == k {
		return next, nil
	}
	at, found := slices.BinarySearchFunc(order, k, func(i int, k Key) int { return g.requests[i].Key.Compare(k) })
	if !found {
		return 0, &CorruptError{What: "answer to an append", Err: fmt.Errorf("nothing was to be appended to %s", k)}
	}
	return at, nil
}

// shared is what many requests of a group have in common, and is sent once.
type shared struct {
	kind      Kind
	eventType EventType
	actor     string
}

// args returns the parameters of append_many.sql.
func (g *group) args(order []int, patience time.Duration) []any {
	var rules, ids, expected, data, metas pgarray.Builder
	var kinds, types, actors, follows, begins pgarray.Builder // of rules
	var timed, afters, ats pgarray.Builder
	idBytes, dataBytes := 0, 0
	for _, i := range order {
		idBytes += len(g.requests[i].Key.BizID)
		dataBytes += len(g.requests[i].Data)
	}
	rules.Grow(len(order), 0)
	expected.Grow(len(order), 0)
	ids.Grow(len(order), idBytes)
	data.Grow(len(order), dataBytes+dataBytes/4) // JSON has many quotes to escape
	known := make(map[shared]int64)
	for n, i := range order {
		r := &g.requests[i]
		s := shared{r.Key.Kind, r.Type, r.Actor}
		rule := known[s]
		if rule == 0 {
			rule = int64(len(known) + 1)
			known[s] = rule
			may, begin := r.Type.follows()
			kinds.Add(string(r.Key.Kind))
			types.Add(string(r.Type))
			actors.AddOptional(r.Actor)
			follows.Add(strings.Join(may, " "))
			begins.Add(strings.Join(begin, " "))
		}
		rules.AddInt(rule)
		ids.Add(string(r.Key.BizID))
		expected.AddInt(int64(r.Expected))
		data.AddOptionalBytes(r.Data)
		metas.AddOptionalBytes(r.Meta)
		if d := (due{r.After, r.At}); !d.isZero() {
			after, at := d.texts()
			timed.AddInt(int64(n + 1))
			afters.AddOptional(after)
			ats.AddOptional(at)
		}
	}
	return []any{
		rules.String(), ids.String(), expected.String(), data.String(), metas.String(),
		kinds.String(), types.String(), actors.String(), follows.String(), begins.String(),
		timed.String(), afters.String(), ats.String(),
		strconv.FormatInt(patience.Milliseconds(), 10) + "ms",
	}
}
