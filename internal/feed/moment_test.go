package feed_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
)

// Of the moments older than an hour the first and the last of each minute stay, so that both ends of a long time
// without commits do.
func TestMomentsAreThinned(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	f.exec(f.owner, `
		insert into taskledger.moment (at, snapshot, top, bound)
		select date_trunc('minute', clock_timestamp()) - make_interval(mins => a.minute)
		       + make_interval(secs => a.second), '3:3:', 0, '3'
		  from (values (180, 5), (180, 10), (180, 15), (180, 20), (120, 59), (119, 0), (119, 1), (119, 2), (70, 30),
		               (10, 1), (10, 2), (10, 3)) a(minute, second)`)
	opened := f.open(f.pool, nil)
	feed.ThinMoments(opened)
	if _, _, err := opened.Poll(f.ctx); err != nil {
		t.Fatal(err)
	}
	rows, _ := f.pool.Query(f.ctx, "select extract(second from at)::integer from taskledger.moment order by at")
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of([]int{5, 20, 59, 0, 2, 30, 1, 2, 3}, got); diff != "" {
		t.Errorf("seconds of the moments that are left (-want +got):\n%s", diff)
	}
}

// Feeds that read the same events share the moments: about one for each second, and one more after a pause. A feed
// without events adds none.
func TestMomentsAreShared(t *testing.T) {
	t.Parallel()
	f := newFeedFixture(t)
	one := f.open(f.pool, nil)
	two, err := feed.Open(f.ctx, f.pool, "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		if err := f.pool.QueryRow(f.ctx, "select count(*) from taskledger.moment").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	begin := time.Now()
	for count() < 4 {
		f.enqueue(f.pool, time.Now().String())
		f.drain(one)
		f.drain(two)
	}
	seconds := int(time.Since(begin)/time.Second) + 1
	if n := count(); n > 2*seconds {
		t.Errorf("%d moments in %d s", n, seconds)
	}
	last := "select coalesce(max(at) > $1::timestamptz, false) from taskledger.moment"
	var now time.Time
	if err := f.pool.QueryRow(f.ctx, "select clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	f.enqueue(f.pool, "last")
	await(t, "the moment after the last event", func() (ok bool) {
		if _, _, err := one.Poll(f.ctx); err != nil {
			t.Fatal(err)
		}
		if err := f.pool.QueryRow(f.ctx, last, now).Scan(&ok); err != nil {
			t.Fatal(err)
		}
		return ok
	})
	n := count()
	for begin := time.Now(); time.Since(begin) < 1500*time.Millisecond; {
		if _, _, err := one.Poll(f.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after != n {
		t.Errorf("%d moments were added without events", after-n)
	}
}
