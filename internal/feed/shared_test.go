package feed_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/feed"
)

// sharingUser is a feed that shares its reading with others.
type sharingUser struct {
	opened *feed.Feed
	leave  func()
}

func (f *feedFixture) joinOthers(name string) sharingUser { return f.joinOthersWith(name, nil) }

func (f *feedFixture) joinOthersWith(name string, archive feed.Archive) sharingUser {
	f.t.Helper()
	found, leave := feed.Shared(f.pool, feed.BySubscriber)
	f.t.Cleanup(leave)
	opened, err := feed.Open(f.ctx, f.pool, name, &feed.Options{AuditEvery: -1, Follows: found, Archive: archive})
	if err != nil {
		f.t.Fatal(err)
	}
	return sharingUser{opened, leave}
}

// deliver enqueues n tasks one by one, and waits until all users have each of them.
func (f *feedFixture) deliver(round string, n int, users []sharingUser) {
	f.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s-%d", round, i)
		f.enqueue(f.pool, id)
		var all sync.WaitGroup
		for _, u := range users {
			all.Go(func() {
				if got := f.next(u.opened); got != id {
					f.t.Errorf("got %s, want %s", got, id)
				}
			})
		}
		all.Wait()
	}
}

// Ten feeds of a pool read little more than one, those with an archive too. The last one goes on alone after the others
// have left.
func TestFeedsShareTheirReading(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	var polled *polls
	f.pool, polled = f.counted()
	var users []sharingUser
	for i := range 10 {
		var past feed.Archive
		if i%2 == 1 {
			past = archive.Source{}
		}
		users = append(users, f.joinOthersWith(fmt.Sprint("user-", i), past))
	}
	f.deliver("all", 5, users)
	before := polled.all.Load()
	const rounds = 40
	f.deliver("many", rounds, users)
	if n := int(polled.all.Load() - before); n > rounds*len(users)/2 {
		t.Errorf("%d feeds have read %d pages for %d tasks", len(users), n, rounds)
	}
	for _, u := range users[1:] {
		u.leave()
	}
	f.deliver("one", 5, users[:1])
	users[0].leave()
	if found, leave := feed.Shared(f.pool, feed.BySubscriber); found == nil {
		t.Error("no findings")
	} else {
		leave()
	}
}

// The feed of a service reads for all while it runs.
func TestReporterReadsForAll(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	users := []sharingUser{f.joinOthers("a"), f.joinOthers("b"), f.joinOthers("c")}
	f.deliver("before", 5, users)
	found, leave := feed.Shared(f.pool, feed.ByService)
	opened, err := feed.Open(f.ctx, f.pool, "service", &feed.Options{AuditEvery: -1, Reports: found})
	if err != nil {
		t.Fatal(err)
	}
	reporter := sharingUser{opened, leave}
	f.drain(reporter.opened) // the tasks from before
	f.deliver("beside", 20, append(users, reporter))
	leave()
	f.deliver("after", 20, users)
}
