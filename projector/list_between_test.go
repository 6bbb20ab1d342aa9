package projector_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// stretch is a time with a task in each second.
type stretch struct {
	from  time.Time
	tasks int
}

// history fills an empty ledger with the tasks of stretches, and projects them. The biz_id of a task is its number.
func history(t *testing.T, pool *pgxpool.Pool, stretches ...stretch) (enqueuedAt []time.Time) {
	t.Helper()
	for _, s := range stretches {
		ledgertest.ExecAsOwner(t, pool, `
			insert into taskledger.event (recorded_at, version, attempt, shard, type, kind, biz_id, meta)
			select $1::timestamptz + i * interval '1 second', 1, 0, i % 64, 'enqueued', 'k', ($2::integer + i)::text,
			       '{"tags":["all"]}'
			  from generate_series(0, $3::integer - 1) i
			 order by i`, s.from, len(enqueuedAt), s.tasks)
		for i := range s.tasks {
			enqueuedAt = append(enqueuedAt, s.from.Add(time.Duration(i)*time.Second))
		}
	}
	project(t, pool)
	return enqueuedAt
}

// listAll returns all tasks of a filter, newest first, and how many calls of ReadTasks it took.
func listAll(t *testing.T, db ledger.DB, f projector.TaskFilter) (ids []string, calls int) {
	t.Helper()
	for isMore := true; isMore; calls++ {
		tasks, next, err := projector.ReadTasks(t.Context(), db, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			ids = append(ids, string(task.BizID))
		}
		isMore, f.StartAfter = next != 0, next
	}
	return ids, calls
}

// between returns the tasks of a range, newest first.
func between(enqueuedAt []time.Time, from, to time.Time) (ids []string) {
	for i := len(enqueuedAt) - 1; i >= 0; i-- {
		if at := enqueuedAt[i]; !at.Before(from) && (to.IsZero() || at.Before(to)) {
			ids = append(ids, fmt.Sprint(i))
		}
	}
	return ids
}

// The cost of a range of time does not grow with the distance between it and the ends of the ledger.
func TestListOfARangeFarFromBothEnds(t *testing.T) {
	defer projector.SetMaxWalk(1000)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	const tasks = 30_000
	begin := time.Now().Add(-48 * time.Hour).Truncate(time.Second)
	enqueuedAt := history(t, pool, stretch{from: begin, tasks: tasks})
	second := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Second) }
	check := func(t *testing.T) {
		t.Helper()
		for _, test := range []struct {
			name     string
			from, to time.Time
			calls    int
		}{
			{name: "near the beginning", from: second(200), to: second(240), calls: 1},
			{name: "in the middle", from: second(25_345), to: second(25_350), calls: 1},
			{name: "over several minutes", from: second(25_345), to: second(25_350 + 600), calls: 1},
			{name: "near the end", from: second(tasks - 700), to: second(tasks - 650), calls: 1},
			{name: "since", from: second(tasks - 5), calls: 1},
			{name: "until", to: second(7), calls: 1},
			{name: "a microsecond", from: second(12_345), to: second(12_345).Add(time.Microsecond), calls: 1},
			{name: "between two tasks", from: second(9).Add(time.Microsecond), to: second(10), calls: 1},
			{name: "nothing", from: second(9), to: second(9), calls: 1},
			{name: "before", from: begin.AddDate(-100, 0, 0), to: begin, calls: 1},
			{name: "after", from: time.Now().AddDate(100, 0, 0), calls: 1},
			{name: "two centuries", from: begin.AddDate(-100, 0, 0), to: time.Now().AddDate(100, 0, 0),
				calls: tasks/projector.MaxList + 1},
		} {
			for _, f := range []projector.TaskFilter{{}, {Tag: "all"}} {
				f.From, f.To, f.Limit = test.from, test.to, projector.MaxList
				got, calls := listAll(t, pool, f)
				if diff := difference.Of(between(enqueuedAt, f.From, f.To), got); diff != "" {
					t.Errorf("%s, tag %q (-want +got):\n%.500s", test.name, f.Tag, diff)
				}
				if f.Tag == "" && calls > test.calls {
					t.Errorf("%s: %d calls, want %d", test.name, calls, test.calls)
				}
			}
		}
	}
	check(t)
	if err := projector.RebuildTasks(t.Context(), ledgertest.As(t, pool, ledgertest.Owner), nil); err != nil {
		t.Fatal(err)
	}
	check(t)

	// A range of more minutes than a call reads begins where it ends in the ledger.
	defer projector.SetMaxMinutes(85)()
	f := projector.TaskFilter{From: second(10_000), To: second(10_000 + 86*60), Limit: projector.MaxList}
	tasksOfPage, _, err := projector.ReadTasks(t.Context(), pool, f)
	if err != nil || len(tasksOfPage) < 900 {
		t.Errorf("the first page of a long range has %d tasks, %v", len(tasksOfPage), err)
	}
	got, _ := listAll(t, pool, f)
	if diff := difference.Of(between(enqueuedAt, f.From, f.To), got); diff != "" {
		t.Errorf("a long range (-want +got):\n%.500s", diff)
	}
}

// After steps of the database's clock, a range has each task that was enqueued in it by that clock.
func TestListOfRangesAfterStepsOfTheClock(t *testing.T) {
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	begin := time.Now().Add(-48 * time.Hour).Truncate(time.Second)
	enqueuedAt := history(t, pool,
		stretch{from: begin, tasks: 600},
		stretch{from: begin.Add(-5 * time.Minute), tasks: 700}, // back
		stretch{from: begin.Add(time.Hour), tasks: 60},         // ahead
		stretch{from: begin.Add(8 * time.Minute), tasks: 600})  // back again
	for _, minutes := range []int{20_000, 3, 1} {
		restore := projector.SetMaxMinutes(minutes)
		for _, width := range []time.Duration{100 * time.Second, 10 * time.Minute, 3 * time.Hour} {
			step := max(width, longtest.Of(11*time.Minute, 0))
			for from := begin.Add(-time.Hour); from.Before(begin.Add(2 * time.Hour)); from = from.Add(step) {
				for _, f := range []projector.TaskFilter{{From: from, To: from.Add(width)}, {From: from}, {To: from}} {
					f.Limit = 300 // of 1,960 tasks
					got, _ := listAll(t, pool, f)
					if diff := difference.Of(between(enqueuedAt, f.From, f.To), got); diff != "" {
						t.Errorf("%d minutes, from %v to %v (-want +got):\n%.500s", minutes, f.From, f.To, diff)
					}
				}
			}
		}
		restore()
	}
}

func TestListRefusesAReversedRange(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	now := time.Now()
	_, _, err := projector.ReadTasks(t.Context(), pool, projector.TaskFilter{From: now, To: now.Add(-time.Second)})
	var invalid *ledger.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "from" {
		t.Errorf("got %v, want an InvalidError about from", err)
	}
}
