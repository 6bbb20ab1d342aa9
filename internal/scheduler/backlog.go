package scheduler

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/backlog_start.sql
	backlogStartSQL string
	//go:embed sql/backlog_page.sql
	backlogPageSQL string
)

// backlogPage is how many events one statement reads.
const backlogPage = 2000

// progress is the projector's place.
type progress struct {
	row         int64 // number of its cursor row
	place       feed.Place
	incarnation string // of the database
}

// backlog is the place where the waiting tasks of a kind begin. No task that still waits was made available before the
// window between the first two edges, nor in that window up to after. The windows follow each other, and end at the
// last edge, up to which the projector has counted. It is for the goroutine of discarder.run.
//
// Its start is found by reading backwards from the newest event until all waiting tasks are found. Then it moves
// forwards, so that finished tasks are read at most twice.
type backlog struct {
	edges       []feed.Edge
	after       ledger.Position
	relievedRow int64 // cursor row of the projector at the last relief
	overAt      time.Time
	incarnation string
}

// isBefore reports whether p can be reached from the backlog by going forwards.
func (l *backlog) isBefore(p progress) bool {
	return l.incarnation == p.incarnation && l.edges[len(l.edges)-1].Top <= p.place.Seen.Top
}

// waitingTask is a task that waited when it was counted.
type waitingTask struct {
	position ledger.Position // of the event that made it available
	id       ledger.BizID
	version  ledger.Version
	hasMoved bool // a later event of the task exists
}

// find finds where the waiting tasks of a kind begin.
func (d *discarder) find(ctx context.Context, o overload) (*backlog, error) {
	before, found := int64(math.MaxInt64), int64(0)
	c := o.counted
	for found < o.waiting {
		var events, tasks int64
		args := append([]any{string(o.kind), before, int64(backlogPage)}, c.place.DeliveredArgs()...)
		scan := func(rows pgx.Rows) error { return rows.Scan(&events, &before, &tasks) }
		if err := d.query(ctx, backlogStartSQL, args, scan); err != nil {
			return nil, fmt.Errorf("find the oldest waiting task of %s: %w", o.kind, err)
		}
		if events == 0 {
			before = 1
			break
		}
		found += tasks
	}
	edges := []feed.Edge{feed.Beginning(), c.place.Seen}
	return &backlog{edges: edges, after: ledger.Position(before - 1), incarnation: c.incarnation}, nil
}

// oldest returns the first n tasks of a kind that waited when they were counted, and moves the backlog up to the first
// task.
func (d *discarder) oldest(ctx context.Context, o overload, l *backlog, n int64) (tasks []waitingTask, err error) {
	after := l.after
	for i := 0; int64(len(tasks)) < n; {
		if i == len(l.edges)-1 {
			if l.edges[i].Snapshot == o.counted.place.Seen.Snapshot {
				break
			}
			l.edges = append(l.edges, o.counted.place.Seen)
		}
		window := feed.Window{Seen: l.edges[i], Until: l.edges[i+1]}
		page, err := d.readPage(ctx, o, window, after, n-int64(len(tasks)))
		if err != nil {
			delete(d.backlogs, o.kind)
			return nil, err
		}
		if len(tasks) == 0 && len(page.tasks) > 0 {
			l.after = page.tasks[0].position - 1
		}
		tasks = append(tasks, page.tasks...)
		switch {
		case page.hasMore && len(tasks) == 0:
			l.after, after = page.reached, page.reached
		case page.hasMore:
			after = page.reached
		case len(tasks) == 0:
			l.edges, l.after, after = l.edges[1:], 0, 0 // no task of this window waits, and none will
		default:
			i, after = i+1, 0
		}
	}
	return tasks, nil
}

// page is the waiting tasks among the events of a page of a window.
type page struct {
	tasks   []waitingTask
	reached ledger.Position // of the last event
	hasMore bool            // the window contains events after it
}

// readPage reads the next page of a window, up to n tasks. It returns [feed.ErrCrashed] if the database is in
// another incarnation, where o.counted is invalid.
func (d *discarder) readPage(
	ctx context.Context, o overload, w feed.Window, after ledger.Position, n int64,
) (p page, err error) {
	c, same, events := o.counted, false, 0
	args := append([]any{string(o.kind)}, w.PageArgs(after, backlogPage)...)
	args = append(append(args, n), c.place.DeliveredArgs()...)
	args = append(args, c.incarnation)
	err = d.query(ctx, backlogPageSQL, args, func(rows pgx.Rows) error {
		var position *int64
		var id *string
		var version *int32
		var hasMoved *bool
		err := rows.Scan(&same, &events, (*int64)(&p.reached), &position, &id, &version, &hasMoved)
		if err == nil && position != nil {
			p.tasks = append(p.tasks, waitingTask{
				position: ledger.Position(*position), id: ledger.BizID(*id), version: ledger.Version(*version),
				hasMoved: *hasMoved,
			})
		}
		return err
	})
	switch {
	case err != nil:
		return page{}, fmt.Errorf("find the oldest waiting tasks of %s: %w", o.kind, err)
	case !same:
		return page{}, feed.ErrCrashed
	}
	p.hasMore = events == backlogPage
	return p, nil
}
