package feed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// followFixture is a feed and its followers.
type followFixture struct {
	*feedFixture
	findings *feed.Findings
	leader   *feed.Feed
	db       *pgxpool.Pool // of the followers
	polls    *polls
}

func newFollowFixture(t *testing.T, pageSize int) *followFixture {
	t.Helper()
	f := &followFixture{feedFixture: newFeedFixture(t), findings: feed.NewFindings()}
	f.db, f.polls = f.counted()
	f.leader = f.lead(pageSize)
	return f
}

func (f *followFixture) lead(pageSize int) *feed.Feed {
	f.t.Helper()
	return f.open(f.pool, &feed.Options{AuditEvery: -1, PageSize: pageSize, Reports: f.findings})
}

func (f *followFixture) follow(name string, o feed.Options) *feed.Feed {
	f.t.Helper()
	o.Follows = f.findings
	if o.AuditEvery == 0 {
		o.AuditEvery = -1
	}
	opened, err := feed.Open(f.ctx, f.db, name, &o)
	if err != nil {
		f.t.Fatal(err)
	}
	return opened
}

// page returns the next page of a feed, which it advances.
func (f *followFixture) page(opened *feed.Feed) feed.Page {
	f.t.Helper()
	page, ok, err := opened.Poll(f.ctx)
	if err != nil || !ok {
		f.t.Fatalf("no page: %v", err)
	}
	if err := page.Advance(f.ctx, nil, nil); err != nil {
		f.t.Fatal(err)
	}
	return page
}

// A follower delivers the pages of several windows of the other feed as one, without a statement of its own, in the
// order of the windows: a late event comes after the events of an earlier window. Each place within them is also a
// place of the other feed.
func TestFollowerTakesPages(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 3)
	follower := f.follow("follower", feed.Options{})

	late := f.begin()
	f.enqueue(late, "late")
	f.enqueue(f.pool, "a", "b", "c", "d")
	pages := []feed.Page{f.page(f.leader), f.page(f.leader)}
	f.commit(late)
	f.enqueue(f.pool, "e")
	pages = append(pages, f.page(f.leader))

	page := f.page(follower)
	if got, want := idsOf(page.Events), []string{"a", "b", "c", "d", "late", "e"}; !slices.Equal(got, want) {
		t.Errorf("delivered %q, want %q", got, want)
	}
	if n := f.polls.all.Load(); n > 0 {
		t.Errorf("%d statements read events", n)
	}
	if page.Place() != pages[2].Place() {
		t.Errorf("at %+v, the other feed at %+v", page.Place(), pages[2].Place())
	}
	n := 0
	for _, p := range pages {
		for i := range p.Events {
			n++
			if got, want := page.PlaceAfter(n), p.PlaceAfter(i+1); got != want {
				t.Errorf("after %d events at %+v, the other feed at %+v", n, got, want)
			}
		}
	}
	if cursor := f.follow("follower", feed.Options{}).Cursor(); cursor.Place() != page.Place() {
		t.Errorf("the cursor is at %+v, not %+v", cursor.Place(), page.Place())
	}
}

// No follower shares the data of its events with another feed, nor with the next event.
func TestFollowersShareNoData(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	first, second := f.follow("first", feed.Options{}), f.follow("second", feed.Options{})
	const args = `{"amount":1}`
	tx := f.begin()
	for _, id := range []string{"a", "b"} {
		key := ledger.Key{Kind: "k", BizID: ledger.BizID(id)}
		if _, err := ledger.Enqueue(f.ctx, tx, key, []byte(args), nil); err != nil {
			t.Fatal(err)
		}
	}
	f.commit(tx)
	read := f.page(f.leader)
	changed := f.page(first)
	copy(changed.Events[0].Data, `{"amount":9}`)
	_ = append(changed.Events[0].Data, "more"...)
	if got := string(changed.Events[1].Data); got != args {
		t.Errorf("the next event has the data %s", got)
	}
	changed.Release()
	for name, page := range map[string]feed.Page{"the leader": read, "the second follower": f.page(second)} {
		for _, e := range page.Events {
			if got := string(e.Data); got != args {
				t.Errorf("%s has the data %s", name, got)
			}
		}
	}
}

// A follower audits the pages that it has taken: it delivers an event that the other feed missed by a defect.
func TestFollowerAuditsWhatItTakes(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	f.leader.Mutate("", f.hide("hidden"))
	missed := 0
	follower := f.follow("follower", feed.Options{AuditEvery: time.Nanosecond,
		Missed: func(_ context.Context, events int) { missed += events }})
	tx := f.begin()
	f.enqueue(tx, "seen", "hidden")
	f.commit(tx)
	f.page(f.leader)
	for _, want := range []string{"seen", "hidden"} {
		if got := idsOf(f.page(follower).Events); !slices.Equal(got, []string{want}) {
			t.Errorf("delivered %q, want %q", got, want)
		}
	}
	if n := f.polls.all.Load(); n > 0 || missed != 1 {
		t.Errorf("%d events missed; %d statements read pages", missed, n)
	}
}

// A follower reads by itself the pages that it cannot take: a page that was read before the follower was opened, and a
// page that the other feed does not read. It then follows again.
func TestFollowerReadsByItself(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	f.enqueue(f.pool, "read before")
	f.follow("another", feed.Options{})
	f.page(f.leader)
	follower := f.follow("follower", feed.Options{})
	if got := idsOf(f.page(follower).Events); !slices.Equal(got, []string{"read before"}) {
		t.Errorf("delivered %q", got)
	}
	if f.polls.all.Load() == 0 {
		t.Error("a page was taken that was read before the follower was opened")
	}

	f.enqueue(f.pool, "a")
	f.page(f.leader)
	if got := f.drain(follower); !slices.Equal(got, []string{"a"}) {
		t.Errorf("delivered %q", got)
	}
	f.enqueue(f.pool, "b")
	f.page(f.leader)
	before := f.polls.all.Load()
	if got := idsOf(f.page(follower).Events); !slices.Equal(got, []string{"b"}) || f.polls.all.Load() != before {
		t.Errorf("after it has caught up it delivered %q by %d statements", got, f.polls.all.Load()-before)
	}

	f.enqueue(f.pool, "c")
	page, err := follower.Next(f.ctx) // while the other one does not poll
	if err != nil {
		t.Fatal(err)
	}
	if got := idsOf(page.Events); !slices.Equal(got, []string{"c"}) {
		t.Errorf("beside a feed that does not poll, delivered %q", got)
	}
}

// A follower takes pages that are larger than its own in parts, by number and by bytes. Each place between them is one
// of the other feed.
func TestFollowerTakesPartsOfPages(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	byNumber := f.follow("by number", feed.Options{PageSize: 2})
	byBytes := f.follow("by bytes", feed.Options{PageBytes: 1})
	var pages []feed.Page
	for _, ids := range [][]string{{"a", "b", "c", "d", "e"}, {"f"}, {"g", "h"}} {
		tx := f.begin()
		for _, id := range ids {
			key := ledger.Key{Kind: "k", BizID: ledger.BizID(id)}
			if _, err := ledger.Enqueue(f.ctx, tx, key, []byte(`{"amount":1}`), nil); err != nil {
				t.Fatal(err)
			}
		}
		f.commit(tx)
		pages = append(pages, f.page(f.leader))
	}
	places := map[string]feed.Place{}
	for _, p := range pages {
		for i, e := range p.Events {
			places[string(e.BizID)] = p.PlaceAfter(i + 1)
		}
	}
	for opened, want := range map[*feed.Feed][][]string{
		byNumber: {{"a", "b"}, {"c", "d"}, {"e", "f"}, {"g", "h"}},
		byBytes:  {{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}, {"g"}, {"h"}},
	} {
		for _, ids := range want {
			page := f.page(opened)
			if got := idsOf(page.Events); !slices.Equal(got, ids) {
				t.Errorf("a page of %q, want %q", got, ids)
			}
			if last := ids[len(ids)-1]; page.Place() != places[last] {
				t.Errorf("after %s at %+v, the other feed at %+v", last, page.Place(), places[last])
			}
		}
	}
	if n := f.polls.all.Load(); n > 0 {
		t.Errorf("%d statements read events", n)
	}
}

// Within a window of the other feed, a follower waits for the next page. If that does not come, it reads by itself.
func TestFollowerWaitsWithinAWindow(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 2)
	follower := f.follow("follower", feed.Options{Gather: time.Minute})
	f.enqueue(f.pool, "a", "b", "c", "d", "e", "f")
	read := time.Now()
	f.page(f.leader)
	f.page(follower)
	next := make(chan feed.Page, 1)
	go func() {
		page, err := follower.Next(f.ctx)
		if err != nil {
			t.Error(err)
		}
		next <- page
	}()
	time.Sleep(20 * time.Millisecond) // it waits now, unless the machine is slow
	f.page(f.leader)
	page := <-next
	if got := idsOf(page.Events); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("delivered %q", got)
	}
	if n := f.polls.all.Load(); n > 0 && time.Since(read) < feed.FollowFor {
		t.Errorf("delivered by %d statements", n)
	}

	follower = f.follow("another follower", feed.Options{Gather: time.Millisecond})
	for got := []string{}; len(got) < 6; { // the other feed reads no more
		page, err := follower.Next(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, idsOf(page.Events)...)
	}
}

// Pages are kept up to limits, for followers, in the database in which they were read.
func TestFoundPages(t *testing.T) {
	t.Parallel()
	pages := feed.NewFoundPages()
	for i := range 2000 {
		pages.Keep("one", i, i+1, 1, 10)
	}
	if n := pages.After("one", 1999); n != 1 {
		t.Errorf("%d pages after the last but one", n)
	}
	if n := pages.After("one", 2000); n != 0 {
		t.Errorf("%d pages after the last", n)
	}
	for what, n := range map[string]int{
		"of another database": pages.After("two", 1999),
		"that was dropped":    pages.After("one", 500),
		"that was never read": pages.After("one", 3000),
	} {
		if n >= 0 {
			t.Errorf("a place %s has %d pages", what, n)
		}
	}

	const events, bytes = 1000, 500
	for i := range 100 {
		pages.Keep("one", 2000+i, 2001+i, events, bytes)
	}
	if kept := 2100 - pages.First(); kept*events > feed.KeptEvents || kept*events*bytes > feed.KeptBytes || kept < 5 {
		t.Errorf("%d pages of %d events with %d bytes each are kept", kept, events, bytes)
	}

	pages.Keep("one", 5000, 5001, 1, 1)
	if pages.After("one", 2100) >= 0 || pages.First() != 5000 {
		t.Error("pages before a gap are kept")
	}
	pages.Keep("two", 5001, 5002, 1, 1)
	if pages.After("one", 5001) >= 0 || pages.After("two", 5001) != 1 || pages.First() != 5001 {
		t.Error("pages of two databases are kept")
	}
}

// TestFollowRace is TestFeedRace for followers, while all feeds are opened repeatedly, use pages of any size, and do
// not advance some. Each delivers every committed event once, each task's events in order.
func TestFollowRace(t *testing.T) {
	t.Parallel()
	f := newFollowFixture(t, 0)
	const sessions, tasks, followers = 8, 20, 3
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var committed atomic.Int64
	var writers sync.WaitGroup
	for w := range sessions {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			conn, err := pgx.Connect(f.ctx, f.pool.Config().ConnString())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			for range *raceTransactions {
				n, err := raceTransaction(f.ctx, conn, random, tasks)
				if err != nil && !raceLost(err) {
					t.Error(err)
				}
				committed.Add(int64(n))
			}
		})
	}
	writing := make(chan struct{})
	go func() { writers.Wait(); close(writing) }()

	ctx, stop := context.WithCancel(f.ctx)
	var leading, following sync.WaitGroup
	leading.Go(func() { followRaceLead(ctx, f, rand.New(rand.NewPCG(seed, 50))) })
	got, pages := make([][]ledger.Event, followers), make([]int, followers)
	for i := range followers {
		following.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(60+i)))
			got[i], pages[i] = followRaceRead(f, fmt.Sprintf("follower-%d", i), random, writing, &committed)
		})
	}
	following.Wait()
	stop()
	leading.Wait()
	want := map[ledger.Position]bool{}
	for e, err := range ledger.Read(f.ctx, f.pool, 0, 1_000_000) {
		if err != nil {
			t.Fatal(err)
		}
		want[e.Position] = true
	}
	all := 0
	for i := range followers {
		raceCheck(t, got[i], want)
		all += pages[i]
	}
	t.Logf("%d pages by %d statements", all, f.polls.all.Load())
	if int(f.polls.all.Load()) > 2*all {
		t.Error("hardly a page was taken")
	}
}

// followRaceLead reads until ctx is done, and sometimes opens the feed again, or moves it as another process does.
func followRaceLead(ctx context.Context, f *followFixture, random *rand.Rand) {
	for ctx.Err() == nil {
		leader := f.lead(1 + random.IntN(400))
		if random.IntN(4) == 0 { // another process
			leader = f.open(f.pool, &feed.Options{AuditEvery: -1, PageSize: 1 + random.IntN(60)})
		}
		for range random.IntN(400) {
			page, err := leader.Next(ctx)
			if err != nil {
				break
			}
			if random.IntN(50) == 0 {
				break // not advanced, so the page is read again
			}
			if err := page.Advance(f.ctx, nil, nil); err != nil {
				f.t.Error(err)
			}
			page.Release()
		}
	}
}

// followRaceRead reads until the writers are done and every committed event is delivered. It returns the events, and
// how many pages it had.
func followRaceRead(f *followFixture, name string, random *rand.Rand, writing <-chan struct{},
	committed *atomic.Int64) (got []ledger.Event, pages int) {
	stalled := time.Now().Add(60 * time.Second)
	for time.Now().Before(stalled) {
		size := 1 + random.IntN(200)
		opened := f.follow(name, feed.Options{PageSize: size,
			Gather: time.Duration(random.IntN(20)) * time.Millisecond, AuditEvery: time.Millisecond,
			Missed: func(_ context.Context, events int) {
				f.t.Errorf("an audit found %d events missing", events)
			}})
		for range 1 + random.IntN(60) {
			ctx, cancel := context.WithTimeout(f.ctx, 700*time.Millisecond)
			page, err := opened.Next(ctx)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				select {
				case <-writing:
					if len(got) >= int(committed.Load()) {
						return got, pages
					}
				default:
				}
				continue
			}
			if err != nil {
				f.t.Error(err)
				return got, pages
			}
			if len(page.Events) > size {
				f.t.Errorf("a page of %d events, at most %d wanted", len(page.Events), size)
			}
			if pages++; random.IntN(20) == 0 {
				break // not advanced, so the page is read again
			}
			if err := page.Advance(f.ctx, nil, nil); err != nil {
				f.t.Error(err)
			}
			got = append(got, page.Events...)
			page.Release()
			stalled = time.Now().Add(60 * time.Second)
		}
	}
	return got, pages
}
