package feed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
)

// polls counts the windows of feeds on a pool, and the pages read, those of windows included.
type polls struct{ n, all atomic.Int64 }

func (p *polls) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	switch d.SQL {
	case feed.WindowSQL:
		p.n.Add(1)
		p.all.Add(1)
	case feed.PageSQL:
		p.all.Add(1)
	}
	return ctx
}

func (*polls) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// counted returns a pool whose polls are counted.
func (f *feedFixture) counted() (*pgxpool.Pool, *polls) {
	f.t.Helper()
	p := new(polls)
	config := f.pool.Config()
	config.ConnConfig.Tracer = p
	db, err := pgxpool.NewWithConfig(f.ctx, config)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(db.Close)
	return db, p
}

// awaitNext makes a feed wait for its next page, and returns a channel with the biz_id of the first event.
func (f *feedFixture) awaitNext(opened *feed.Feed) <-chan string {
	got := make(chan string, 1)
	go func() { got <- f.next(opened) }()
	return got
}

// A following feed does not poll while the followed feed polls and finds nothing, and reads the events that it finds.
// It also reads an event that the followed feed does not find, because that feed had stopped, or because another
// process had moved its cursor meanwhile.
func TestFollowingFeedPollsNot(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	findings := feed.NewFindings()
	ledDB, led := f.counted()
	followingDB, following := f.counted()
	leader := f.open(ledDB, &feed.Options{AuditEvery: -1, Reports: findings})
	follower, err := feed.Open(f.ctx, followingDB, "follower", &feed.Options{AuditEvery: -1, Follows: findings})
	if err != nil {
		t.Fatal(err)
	}

	found, followed := f.awaitNext(leader), f.awaitNext(follower)
	await(t, "both to poll", func() bool { return led.n.Load() > 0 && following.n.Load() > 0 })
	before, polled := led.n.Load(), following.n.Load()
	await(t, "a hundred polls", func() bool { return led.n.Load() >= before+100 })
	if n := following.n.Load() - polled; n > 50 { // a feed that the reports reached late is an exception
		t.Errorf("%d polls beside a feed that polled %d times", n, led.n.Load()-before)
	}
	f.enqueue(f.pool, "found")
	for name, got := range map[string]<-chan string{"leader": found, "follower": followed} {
		if id := <-got; id != "found" {
			t.Errorf("the %s delivered %q", name, id)
		}
	}

	followed = f.awaitNext(follower)
	f.enqueue(f.pool, "while the other one does not poll")
	if id := <-followed; id != "while the other one does not poll" {
		t.Errorf("the follower delivered %q", id)
	}

	// The follower has read all events, and waits.
	idle, cancel := context.WithCancel(f.ctx)
	before = following.n.Load()
	ended := make(chan error)
	go func() { _, err := follower.Next(idle); ended <- err }()
	await(t, "an empty poll", func() bool { return following.n.Load() > before })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	f.enqueue(f.pool, "passed by another process")
	f.drain(f.open(f.pool, nil))
	leader = f.open(ledDB, &feed.Options{AuditEvery: -1, Reports: findings})
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	go func() { _, err := leader.Next(ctx); ended <- err }()
	before = led.n.Load()
	await(t, "the new leader's polls", func() bool { return led.n.Load() > before+2 })
	if id := f.next(follower); id != "passed by another process" {
		t.Errorf("the follower delivered %q", id)
	}
	stop()
	<-ended
}

// A following feed audits its pages even if no event follows: an event that it missed by a defect does not wait for
// the next event.
func TestFollowingFeedAudits(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	findings := feed.NewFindings()
	leader := f.open(f.pool, &feed.Options{AuditEvery: -1, Reports: findings})
	missed := make(chan int, 1)
	follower, err := feed.Open(f.ctx, f.pool, "follower", &feed.Options{
		AuditEvery: time.Second, Follows: findings,
		Missed: func(_ context.Context, events int) { missed <- events },
	})
	if err != nil {
		t.Fatal(err)
	}
	follower.Mutate("", f.hide("hidden"))
	f.enqueue(f.pool, "audited at once")
	f.drain(follower)
	f.drain(follower)
	tx := f.begin()
	for _, id := range []string{"seen", "hidden"} {
		f.enqueue(tx, id)
	}
	f.commit(tx)
	if id := f.next(follower); id != "seen" {
		t.Fatalf("the follower delivered %q", id)
	}

	ctx, stop := context.WithCancel(f.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = leader.Next(ctx)
		}
	}()
	defer func() { stop(); <-ended }()
	delivered := f.awaitNext(follower)
	select {
	case id := <-delivered:
		if id != "hidden" {
			t.Errorf("the follower delivered %q", id)
		}
	case <-time.After(20 * time.Second):
		t.Error("the follower waits for the next event to audit what it has read")
		f.enqueue(f.pool, "next")
		<-delivered
	}
	if n := <-missed; n != 1 {
		t.Errorf("%d events missed", n)
	}
}

// Nothing is known before the first report, and nothing of the time before a window that followed no other.
func TestFindings(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	type report struct {
		begun, ended      int
		isNext, hasEvents bool
	}
	first, next := report{begun: 10, ended: 11}, report{begun: 20, ended: 21, isNext: true}
	events, other := next, report{begun: 20, ended: 21}
	events.hasEvents = true
	for name, c := range map[string]struct {
		reports []report
		polled  int
		quiet   int // since when the last window is known to be empty; -1: unknown
		isFound bool
	}{
		"no report":               {polled: 5, quiet: -1},
		"before the first":        {reports: []report{first, next}, polled: 5, quiet: -1, isFound: true},
		"within the first":        {reports: []report{first, next}, polled: 10, quiet: -1, isFound: true},
		"after the first":         {reports: []report{first, next}, polled: 12, quiet: 20},
		"before events":           {reports: []report{first, events}, polled: 12, quiet: -1, isFound: true},
		"after events":            {reports: []report{first, events}, polled: 22, quiet: 20},
		"before a feed was reset": {reports: []report{first, other}, polled: 12, quiet: -1, isFound: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := feed.NewFindings()
			for _, r := range c.reports {
				s.Report(at(r.begun), at(r.ended), r.isNext, r.hasEvents)
			}
			quiet, found := s.After(at(c.polled))
			var want time.Time
			if c.quiet >= 0 {
				want = at(c.quiet).Add(feed.FollowFor)
			}
			if !quiet.Equal(want) {
				t.Errorf("quiet until %v, want %v", quiet, want)
			}
			if (found == nil) != c.isFound {
				t.Errorf("found: %t", found == nil)
			}
		})
	}
}

// A feed that reports no more, because its process has lost a lease, hurries no other.
func TestWaitsAreReportedForAShortTime(t *testing.T) {
	t.Parallel()
	s := feed.NewFindings()
	if s.IsAwaited() {
		t.Error("a process waits before the first report")
	}
	s.ReportAwaited(time.Now())
	if !s.IsAwaited() {
		t.Error("no process waits after a report")
	}
	s.ReportAwaited(time.Now().Add(-2 * feed.FollowFor))
	if s.IsAwaited() {
		t.Error("a process waits long after the last report")
	}
}
