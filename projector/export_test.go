package projector

import (
	"context"
	"embed"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// ApplyPage applies one page of the built-in projection, as Run does.
func ApplyPage(ctx context.Context, r *Runner, page feed.Page) error {
	return newUnlistedFollower(r).apply(ctx, page)
}

// newUnlistedFollower returns a follower of the built-in projection that lists no lingering tasks.
func newUnlistedFollower(r *Runner) *follower {
	f := newFollower(r.config)
	f.lingering = &lingering{known: f.known, due: time.Now().Add(time.Hour)}
	return f
}

// PageSize returns the maximum number of events in a page of r.
func PageSize(r *Runner) int { return r.config.PageSize }

// Begin returns the statements that begin the transaction of a page.
func Begin() string { return begin() }

// SetPageStall sets how long a process that is stopped in a page can keep others from the projection.
func SetPageStall(d time.Duration) (restore func()) {
	old := pageStall
	pageStall = d
	return func() { pageStall = old }
}

// SQL holds every statement.
//
//go:embed sql/*.sql
var SQL embed.FS

// VerifyIn is Verify in the transaction of a test.
func VerifyIn(ctx context.Context, tx pgx.Tx) (Report, error) { return verify(ctx, tx, nil) }

// SetStatsInMemory sets the number of kinds and minutes that a verification has in memory.
func SetStatsInMemory(n int) (restore func()) {
	old := statsInMemory
	statsInMemory = n
	return func() { statsInMemory = old }
}

// SetVerifyBatch sets the number of events that Verify reads at a time.
func SetVerifyBatch(n int) (restore func()) {
	old := verifyBatch
	verifyBatch = n
	return func() { verifyBatch = old }
}

// SetMaxWalk sets the maximum number of events that one call of ReadTasks reads.
func SetMaxWalk(n int) (restore func()) {
	old := maxWalk
	maxWalk = n
	return func() { maxWalk = old }
}

// SetMaxMinutes sets the maximum number of kinds and minutes that one call of ReadTasks reads.
func SetMaxMinutes(n int) (restore func()) {
	old := maxMinutes
	maxMinutes = n
	return func() { maxMinutes = old }
}

// SetTagHistoryPage sets the number of events in a page of the history of tags.
func SetTagHistoryPage(n int) (restore func()) {
	old := tagHistoryPage
	tagHistoryPage = n
	return func() { tagHistoryPage = old }
}

// SetLoadBatch sets the number of events that a rebuild of the built-in projection reads at a time.
func SetLoadBatch(n int) (restore func()) {
	old := loadBatch
	loadBatch = n
	return func() { loadBatch = old }
}

// HistogramOf returns the histogram of one duration.
func HistogramOf(d time.Duration) Histogram { return Histogram(nil).add(d) }

// ApplyAll applies every committed event of the built-in projection by one follower, page by page.
func ApplyAll(tb testing.TB, r *Runner, db *pgxpool.Pool) {
	tb.Helper()
	if err := Applier(r, db, nil)(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// Applier returns a function that applies every committed event of the built-in projection by the same follower, page
// by page. edit changes the statement that updates tasks; nil: not.
func Applier(r *Runner, db *pgxpool.Pool, edit func(sql string) string) (apply func(context.Context) error) {
	f := newUnlistedFollower(r)
	if edit != nil {
		f.tasks.sql.update = edit(f.tasks.sql.update)
	}
	return func(ctx context.Context) error {
		reader, err := feed.Open(ctx, db, feed.ProjectorReader, &feed.Options{PageSize: r.config.PageSize})
		for err == nil {
			var page feed.Page
			var ok bool
			if page, ok, err = reader.Poll(ctx); err == nil && !ok {
				return nil
			}
			if err == nil {
				err = f.apply(ctx, page)
			}
		}
		return err
	}
}

// SetLingerPage makes the list of lingering tasks due at once, and its pages short.
func SetLingerPage(n int) (restore func()) {
	oldAfter, oldBusy, oldPage := lingerAfter, lingerBusy, lingerPage
	lingerAfter, lingerBusy, lingerPage = 0, 0, n
	return func() { lingerAfter, lingerBusy, lingerPage = oldAfter, oldBusy, oldPage }
}

// ListStep makes the first step of a list of lingering tasks that begins at the first event. It returns the projector's
// place and that of the list.
func ListStep(ctx context.Context, pool *pgxpool.Pool, db ledger.DB) (applied, listed feed.Place, err error) {
	reader, err := feed.Open(ctx, pool, feed.ProjectorReader, nil)
	if err != nil {
		return applied, listed, err
	}
	cursor := reader.Cursor()
	applied = feed.Place{Window: feed.Window{Seen: cursor.Place().Seen}}
	l := &lingering{
		known: new(known),
		place: feed.Place{Window: feed.Window{Seen: feed.Beginning()}}, applied: applied.Seen, upTo: applied.Seen,
	}
	next, err := l.next(ctx, db)
	return applied, next.place, err
}

// ListTimes returns at which of n times, lingerAfter apart, a list is due, while there are events between them.
func ListTimes(n int, events func(i int) int) (due []int) {
	l := &lingering{upTo: feed.Beginning(), applied: feed.Beginning()}
	now := time.Now()
	for i := range n {
		if l.end(now) != (feed.Edge{}) {
			due = append(due, i)
		}
		l.events += events(i)
		now = now.Add(lingerAfter)
	}
	return due
}

// GroupEvents returns a function that groups events by task and releases the groups, and one that reports whether their
// memory refers to nothing.
func GroupEvents() (group func([]ledger.Event), isEmpty func() bool) {
	var g grouper
	group = func(events []ledger.Event) {
		if n := len(g.byTask(events)); n != len(events) {
			panic("tasks are missing")
		}
		g.release()
	}
	return group, func() bool {
		for _, c := range g.tasks[:cap(g.tasks)] {
			if c.events != nil || c.key.BizID != "" {
				return false
			}
		}
		return true
	}
}
