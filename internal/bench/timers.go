package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/workers/scheduler"
)

// measureTimers: what 1,000,000 waiting timers cost an enqueue, and how late timers are fired of
// which 10,000 are due a second, before and while somebody holds a snapshot.
func measureTimers(ctx context.Context, b *bench) error {
	if err := b.enqueueBesideTimers(ctx); err != nil {
		return err
	}
	if err := wait(ctx, b.db, b.size(1_000_000)); err != nil {
		return err
	}
	if err := b.fireOnTime(ctx, "quiet"); err != nil {
		return err
	}
	reader, err := b.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	defer func() { _ = reader.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := reader.Exec(ctx, "select from taskledger.event limit 1"); err != nil {
		return err
	}
	if err := b.fireOnTime(ctx, "held"); err != nil { // leaves its dead entries for the next
		return err
	}
	if err := b.fireOnTime(ctx, "held longer"); err != nil {
		return err
	}
	return b.fireBacklog(ctx)
}

// wait makes timers that are due in more than an hour.
func wait(ctx context.Context, db *pgxpool.Pool, n int) error {
	_, err := db.Exec(ctx, `insert into taskledger.timer
		select clock_timestamp() + interval '1 hour' + i * interval '1 second', 'bench.waiting', 'task-' || i, 1, 'due'
		  from generate_series(1, $1::integer) i`, n)
	return err
}

// enqueueBesideTimers enqueues into two databases in turns, one with timers waiting and one without.
func (b *bench) enqueueBesideTimers(ctx context.Context) error {
	n := b.size(1_000_000)
	full, err := b.anotherDatabase(ctx, "full")
	if err != nil {
		return err
	}
	defer full.Close()
	if err := wait(ctx, full, n); err != nil {
		return err
	}
	if _, err := full.Exec(ctx, "vacuum analyze taskledger.timer"); err != nil {
		return err
	}
	waiting := []int{0, n}
	for _, name := range []string{"undelayed", "delayed"} {
		o := &ledger.EnqueueOptions{}
		if name == "delayed" {
			o.RunIn = 2 * time.Hour
		}
		var took [2]time.Duration
		var done [2]int
		for round, until := 0, time.Now().Add(b.config.Lasts); round < 2 || time.Now().Before(until); round++ {
			i := round % 2
			db := []*pgxpool.Pool{b.db, full}[i]
			begin := time.Now()
			for j := range 200 {
				if _, err := kind.Enqueue(ctx, db, ledger.BizID(fmt.Sprintf("%s-%d-%d", name, round, j)), args, o); err != nil {
					return err
				}
			}
			took[i] += time.Since(begin)
			done[i] += 200
		}
		for i, d := range took {
			b.add(fmt.Sprintf("enqueue, %s, %d timers waiting", name, waiting[i]), float64(d.Microseconds())/float64(done[i]), "µs")
		}
	}
	_, err = b.db.Exec(ctx, "delete from taskledger.timer")
	return err
}

func (b *bench) anotherDatabase(ctx context.Context, name string) (*pgxpool.Pool, error) {
	if _, err := b.db.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, b.url(name)); err != nil {
		return nil, err
	}
	return pgxpool.New(ctx, b.url(name))
}

const dueRate = 10_000 // timers a second

// fireOnTime has timers due at a steady rate and a scheduler fire them.
func (b *bench) fireOnTime(ctx context.Context, name string) error {
	n := int(b.config.Lasts.Seconds() * dueRate)
	if err := b.fillLater(ctx, name, n); err != nil {
		return err
	}
	// Only now, so that filling takes as long as it takes; and this, too.
	_, err := b.db.Exec(ctx, `update taskledger.timer t
		   set due_at = statement_timestamp() + $3::bigint * interval '1 millisecond' + r.i * interval '1 second' / $2::integer
		  from (select x.ctid as address, row_number() over (order by x.biz_id) as i from taskledger.timer x where x.kind = $1::text) r
		 where t.ctid = r.address`, laterKind(name), dueRate, (b.config.Lasts/4 + 500*time.Millisecond).Milliseconds())
	if err != nil {
		return err
	}
	stop, err := b.startScheduler(ctx)
	if err != nil {
		return err
	}
	err = b.allReleased(ctx, name, n)
	stop()
	if err != nil {
		return err
	}
	var p50, p99, most float64
	err = b.db.QueryRow(ctx, `
		select percentile_cont(0.5) within group (order by late), percentile_cont(0.99) within group (order by late), max(late)
		  from (select extract(epoch from e.recorded_at - (e.data->>'due_at')::timestamptz)::double precision * 1000 as late
		          from taskledger.event e where e.kind = $1::text and e.type = 'released') l`, laterKind(name)).Scan(&p50, &p99, &most)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"p50", p50}, {"p99", p99}, {"most", most}} {
		b.add(fmt.Sprintf("late at %d due/s, %s, %s", dueRate, name, f.name), f.value, "ms")
	}
	return nil
}

// fireBacklog fires timers that are all due.
func (b *bench) fireBacklog(ctx context.Context) error {
	n := b.size(100_000)
	for _, schedulers := range []int{1, 2} {
		name := fmt.Sprintf("backlog %d", schedulers)
		if err := b.fillLater(ctx, name, n); err != nil {
			return err
		}
		if _, err := b.db.Exec(ctx, "update taskledger.timer set due_at = clock_timestamp() where kind = $1::text", laterKind(name)); err != nil {
			return err
		}
		begin := time.Now()
		var stops []func()
		for range schedulers {
			stop, err := b.startScheduler(ctx)
			if err != nil {
				return err
			}
			stops = append(stops, stop)
		}
		err := b.allReleased(ctx, name, n)
		b.add(fmt.Sprintf("timers fired from a backlog, %d schedulers", schedulers), float64(n)/time.Since(begin).Seconds(), "timers/s")
		for _, stop := range stops {
			stop()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func laterKind(name string) string { return "bench." + strings.ReplaceAll(name, " ", "-") }

func (b *bench) fillLater(ctx context.Context, name string, n int) error {
	const batch = 2000
	for first := 0; first < n; first += batch {
		var entries []ledger.Entry
		for i := first; i < min(n, first+batch); i++ {
			entries = append(entries, ledger.Entry{
				Key:  ledger.Key{Kind: ledger.Kind(laterKind(name)), BizID: ledger.BizID(fmt.Sprintf("task-%08d", i))},
				Args: args, Options: &ledger.EnqueueOptions{RunIn: time.Hour / 2},
			})
		}
		if _, err := ledger.EnqueueMany(ctx, b.db, entries); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) startScheduler(ctx context.Context) (stop func(), err error) {
	s, err := scheduler.New(scheduler.Config{DB: b.db, Hooks: []scheduler.Hook{&b.fired}})
	if err != nil {
		return nil, err
	}
	return background(ctx, s.Run), nil
}

// fired counts the tasks that schedulers released.
type fired struct {
	scheduler.HookDefaults
	mu       sync.Mutex
	released int
}

// AfterBatch counts a batch.
func (f *fired) AfterBatch(_ context.Context, b scheduler.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released += b.Released
}

// take returns the count and begins anew once it has reached n.
func (f *fired) take(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.released < n {
		return false
	}
	f.released = 0
	return true
}

func (b *bench) allReleased(ctx context.Context, name string, n int) error {
	if err := await(ctx, func() (bool, error) { return b.fired.take(n), nil }); err != nil {
		return err
	}
	var released int
	err := b.db.QueryRow(ctx, "select count(*) from taskledger.event where kind = $1::text and type = 'released'", laterKind(name)).Scan(&released)
	if err == nil && released != n {
		err = fmt.Errorf("%d of %d tasks were released", released, n)
	}
	return err
}
