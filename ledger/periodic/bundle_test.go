package periodic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// patience is the timeout of conditions that normally hold within milliseconds.
const patience = time.Minute

// bundle is a test with a database of its own.
type bundle struct {
	t  testing.TB
	db *pgxpool.Pool
}

func setup(t testing.TB) *bundle {
	t.Helper()
	return &bundle{t: t, db: ledgertest.Pool(t, ledgertest.App, "relay", "operator")}
}

// one returns the only value of a statement's result.
func one[T any](b *bundle, sql string, args ...any) T {
	b.t.Helper()
	rows, err := b.db.Query(context.Background(), sql, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) apply(schedules ...periodic.Schedule) []periodic.Difference {
	b.t.Helper()
	d, err := periodic.Apply(b.t.Context(), b.db, schedules, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

func (b *bundle) load(name string) periodic.Status {
	b.t.Helper()
	s, err := periodic.Load(b.t.Context(), b.db, name)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// runner returns a runner that was not started.
func (b *bundle) runner() *periodic.Runner {
	return periodic.NewRunner(b.db, slog.New(slog.NewTextHandler(&testWriter{b.t}, nil)))
}

// run runs a runner until the test ends or stop is called.
func (b *bundle) run(r *periodic.Runner) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(ctx); err != nil {
			b.t.Errorf("runner: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	b.t.Cleanup(stop)
	return stop
}

// pass makes a runner fire all that is due on a clock that is ahead of the database's.
func (b *bundle) pass(r *periodic.Runner, clock time.Duration) {
	b.t.Helper()
	r.SetClock(clock)
	if _, err := r.Pass(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// due sets the next firing of a schedule back, as if no runner had been at work since.
func (b *bundle) due(name string, since string) {
	b.t.Helper()
	b.exec("update taskledger.schedule set next_at = next_at - $2::text::interval where name = $1", name, since)
}

// fired returns the tasks of a schedule that were not discarded, by firing.
func (b *bundle) fired(name string) []string {
	b.t.Helper()
	return b.ids(name, "not exists")
}

// passed returns the tasks of a schedule that were discarded, by firing.
func (b *bundle) passed(name string) []string {
	b.t.Helper()
	return b.ids(name, "exists")
}

func (b *bundle) ids(name, discarded string) []string {
	b.t.Helper()
	rows, err := b.db.Query(context.Background(), fmt.Sprintf(`
		select e.biz_id from taskledger.event e
		 where e.version = 1 and e.biz_id like $1 and %s (
		   select from taskledger.event d where d.kind = e.kind and d.biz_id = e.biz_id and d.type = 'discarded')
		 order by e.biz_id`, discarded), name+"@%")
	if err != nil {
		b.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	return ids
}

// firing returns the time in the biz_id of a firing's task.
func (b *bundle) firing(id string) time.Time {
	b.t.Helper()
	_, text, _ := strings.Cut(id, "@")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		b.t.Fatal(err)
	}
	return at
}

// discardedData returns the data of a task's discarded event.
func (b *bundle) discardedData(k ledger.Key) (d map[string]any) {
	b.t.Helper()
	events, err := ledger.History(b.t.Context(), b.db, k)
	if err != nil {
		b.t.Fatal(err)
	}
	last := events[len(events)-1]
	if last.Type != ledger.EventDiscarded {
		b.t.Fatalf("%s ends with %s", k, last.Type)
	}
	if err := json.Unmarshal(last.Data, &d); err != nil {
		b.t.Fatal(err)
	}
	return d
}

func (b *bundle) await(what string, done func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// testWriter writes log lines to the log of the test.
type testWriter struct{ t testing.TB }

func (w *testWriter) Write(line []byte) (int, error) {
	w.t.Logf("%s", line[:len(line)-1])
	return len(line), nil
}

// inHalfAnHour is one expression for all calls of [hourly], between which a minute may begin.
var inHalfAnHour = fmt.Sprintf("%d * * * *", time.Now().Add(30*time.Minute).Minute())

// hourly returns an hourly schedule that is first due in half an hour, when the tests have ended.
func hourly(name string) periodic.Schedule {
	return periodic.Schedule{
		Name: name, Kind: "report.make", Args: json.RawMessage(`{"of": "sales"}`),
		Cron: inHalfAnHour, Zone: "Europe/Berlin",
	}
}
