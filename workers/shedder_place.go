package workers

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/feed"
)

var (
	//go:embed sql/overload_page.sql
	overloadPageSQL string
	//go:embed sql/overload_back.sql
	overloadBackSQL string
)

// shedPage is how many events a statement looks at.
const shedPage = 2000

// counted is how far the projector had got when it counted.
type counted struct {
	n           int64 // of its cursor row
	seen        edge  // everything visible in it is counted
	until       string
	after       int64 // and of what is visible in until everything up to here
	incarnation string
}

// edge is one end of a window of the feed: a snapshot, the last position drawn when it was taken,
// and an xid newer than both.
type edge struct {
	snapshot string
	top      int64
	bound    string
}

// noEdge is before everything.
var noEdge = edge{snapshot: "3:3:", bound: "3"}

// waitingFrom is where the waiting tasks of a kind begin: none that waits is before the window
// between the first two edges, nor in it up to after. The windows follow each other; together they
// hold what is counted up to the last edge.
type waitingFrom struct {
	edges       []edge
	after       int64
	looked      int64 // cursor row of the projector with which it was looked last
	over        time.Time
	incarnation string
}

// waiting is a task that waited when it was counted.
type waiting struct {
	position int64 // of the event that made it available
	id       ledger.BizID
	version  ledger.Version
	moved    bool // it does not any more
}

// find finds where the waiting tasks of a kind begin.
func (s *shedder) find(ctx context.Context, o overLimit) (*waitingFrom, error) {
	before, found := int64(math.MaxInt64), int64(0)
	c := o.counted
	for found < o.waiting {
		var events, tasks int64
		args := []any{string(o.kind), before, int64(shedPage), c.seen.snapshot, c.until, c.after}
		err := s.query(ctx, overloadBackSQL, args, func(rows pgx.Rows) error { return rows.Scan(&events, &before, &tasks) })
		if err != nil {
			return nil, fmt.Errorf("find the oldest waiting task of %s: %w", o.kind, err)
		}
		if events == 0 {
			before = 1
			break
		}
		found += tasks
	}
	return &waitingFrom{edges: []edge{noEdge, c.seen}, after: before - 1, incarnation: c.incarnation}, nil
}

// oldest returns the first n tasks of a kind that waited when they were counted, and moves the place
// up to the first of them.
func (s *shedder) oldest(ctx context.Context, o overLimit, p *waitingFrom, n int64) (found []waiting, err error) {
	after := p.after
	for i := 0; int64(len(found)) < n; {
		if i == len(p.edges)-1 {
			if p.edges[i].snapshot == o.counted.seen.snapshot {
				break
			}
			p.edges = append(p.edges, o.counted.seen)
		}
		page, reached, more, err := s.page(ctx, o, p.edges[i], p.edges[i+1], after, n-int64(len(found)))
		if err != nil {
			delete(s.places, o.kind)
			return nil, err
		}
		if len(found) == 0 && len(page) > 0 {
			p.after = page[0].position - 1
		}
		found = append(found, page...)
		switch {
		case more && len(found) == 0:
			p.after, after = reached, reached
		case more:
			after = reached
		case len(found) == 0:
			p.edges, p.after, after = p.edges[1:], 0, 0 // nothing waits in this window, nor ever will
		default:
			i, after = i+1, 0
		}
	}
	return found, nil
}

// page returns at most n of the tasks that waited, of a page of a window, the position of its last
// event, and whether the window has more.
func (s *shedder) page(ctx context.Context, o overLimit, from, to edge, after, n int64) (found []waiting, reached int64, more bool, err error) {
	c, same, events := o.counted, false, 0
	args := []any{string(o.kind), from.snapshot, from.top, from.bound, to.snapshot, to.top, after, int64(shedPage), n,
		c.seen.snapshot, c.until, c.after, c.incarnation}
	err = s.query(ctx, overloadPageSQL, args, func(rows pgx.Rows) error {
		var position *int64
		var id *string
		var version *int32
		var moved *bool
		err := rows.Scan(&same, &events, &reached, &position, &id, &version, &moved)
		if err == nil && position != nil {
			found = append(found, waiting{*position, ledger.BizID(*id), ledger.Version(*version), *moved})
		}
		return err
	})
	switch {
	case err != nil:
		return nil, 0, false, fmt.Errorf("find the oldest waiting tasks of %s: %w", o.kind, err)
	case !same:
		return nil, 0, false, feed.ErrCrashed
	}
	return found, reached, events == shedPage, nil
}
