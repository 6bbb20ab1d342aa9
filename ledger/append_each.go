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
)

//go:embed sql/append_many.sql
var appendManySQL string

// AppendResult is the outcome of one request of a group.
type AppendResult struct {
	Event Event
	Err   error // nil, or as Append would have returned
}

// A group waits for groupPatience at most for somebody's open transaction that holds one of its
// keys. When that has passed, somebody holds one for longer than a moment, and its parts wait less.
const (
	groupPatience = 200 * time.Millisecond
	minPatience   = 10 * time.Millisecond
)

// AppendEach appends every request in its own right, as one group in one statement where that
// works: one that conflicts does not harm the others. If the group as a whole fails by one of its
// keys, because somebody's open transaction holds it longer than a moment, it is halved, and what
// fails again is halved again, so that one such key among n costs about 2 log2 n statements. If the
// connection is lost, and with it the answer, the group is sent once more, as [AppendRequest].Resent.
//
// A key may occur once; the second is refused. db must not be in a transaction (a pool, or an
// idle connection), since each attempt commits by itself. Results are in the order of the requests.
func AppendEach(ctx context.Context, db DB, requests []AppendRequest) []AppendResult {
	g := &group{
		db: db, requests: slices.Clone(requests),
		byKey: make(map[Key]int, len(requests)), results: make([]AppendResult, len(requests)),
	}
	order := make([]int, 0, len(requests))
	for i, r := range requests {
		err := r.validate()
		if _, twice := g.byKey[r.Key]; err == nil && twice {
			err = &InvalidError{Field: "key", Value: r.Key.String(), Rule: "may occur once in a group"}
		}
		if err != nil {
			g.results[i].Err = fmt.Errorf("append to %s: %w", r.Key, err)
			continue
		}
		g.byKey[r.Key] = i
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return requests[a].Key.Compare(requests[b].Key) })
	added, err := g.insert(ctx, order, groupPatience)
	var connect *pgconn.ConnectError // after which nothing was sent
	if isConnectionLost(err) && !errors.As(err, &connect) {
		for i := range g.requests {
			g.requests[i].Resent = true
		}
		added, err = g.insert(ctx, order, groupPatience)
	}
	g.conclude(ctx, order, groupPatience, added, err)
	return g.results
}

// group is the requests of one AppendEach.
type group struct {
	db       DB
	requests []AppendRequest
	byKey    map[Key]int
	results  []AppendResult
}

// conclude fills in the results of the requests in order, after they were sent; those that failed
// together are sent again in halves.
func (g *group) conclude(ctx context.Context, order []int, patience time.Duration, added map[Key]Event, err error) {
	switch {
	case err == nil:
		for _, i := range order {
			if e, ok := added[g.requests[i].Key]; ok {
				g.results[i].Event = e
			} else {
				g.results[i].Event, g.results[i].Err = notAppended(ctx, g.db, g.requests[i])
			}
		}
	case len(order) > 1 && isOfOneRow(err):
		patience = max(patience/2, minPatience)
		for _, half := range [][]int{order[:len(order)/2], order[len(order)/2:]} {
			added, err := g.insert(ctx, half, patience)
			g.conclude(ctx, half, patience, added, err)
		}
	default:
		for _, i := range order {
			g.results[i].Err = explain("append to "+g.requests[i].Key.String(), err)
		}
	}
}

// isOfOneRow reports whether the other rows of a statement that failed may well be accepted: the
// server is there, and willing, and it is not the statement.
func isOfOneRow(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return false
	}
	switch pg.Code[:2] {
	case "08", "25", "3D", "42", "53", "58", "XX":
		return false
	case "57":
		return pg.Code == "57014" // a statement_timeout shorter than our patience, while it waited for a key
	}
	return true
}

// insert returns the events that were inserted, by key.
func (g *group) insert(ctx context.Context, order []int, patience time.Duration) (map[Key]Event, error) {
	var kinds, ids, expected, rules, actors, data, metas, afters, ats textArray
	var types, follows, begins textArray // by rule
	rule := make(map[EventType]string)
	for _, i := range order {
		r := g.requests[i]
		n, known := rule[r.Type]
		if !known {
			n = strconv.Itoa(len(rule) + 1)
			rule[r.Type] = n
			may, begin := r.Type.follows()
			types.add(string(r.Type))
			follows.add(strings.Join(may, " "))
			begins.add(strings.Join(begin, " "))
		}
		kinds.add(string(r.Key.Kind))
		ids.add(string(r.Key.BizID))
		expected.add(strconv.Itoa(int(r.Expected)))
		rules.add(n)
		actors.addOptional(r.Actor)
		data.addOptional(string(r.Data))
		metas.addOptional(string(r.Meta))
		after, at := due{r.After, r.At}.texts()
		afters.addOptional(after)
		ats.addOptional(at)
	}
	rows, err := g.db.Query(ctx, appendManySQL,
		kinds.String(), ids.String(), expected.String(), rules.String(), actors.String(), data.String(), metas.String(),
		afters.String(), ats.String(), types.String(), follows.String(), begins.String(),
		strconv.FormatInt(patience.Milliseconds(), 10)+"ms")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	added := make(map[Key]Event, len(order))
	for rows.Next() {
		var kind, id string
		var e Event
		var stored *string
		if err := rows.Scan(append(append([]any{&kind, &id}, e.returned()...), &stored)...); err != nil {
			return nil, err
		}
		r := g.requests[g.byKey[Key{Kind(kind), BizID(id)}]]
		e.Key, e.Type, e.Data, e.Meta = r.Key, r.Type, r.Data, r.Meta
		e.stored(stored)
		added[r.Key] = e
	}
	return added, rows.Err()
}
