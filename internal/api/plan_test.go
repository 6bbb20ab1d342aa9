package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// statements records what a pool executes.
type statements struct {
	mu  sync.Mutex
	all map[string][]any
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[d.SQL] = d.Args
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

var (
	// scan finds a table that grows with the history, read as a whole.
	scan = regexp.MustCompile(`Seq Scan on (event|task|task_tag|timer)\b`)
	// scanByKey finds a scan of the primary key of the events that is not bounded by a kind.
	scanByKey = regexp.MustCompile(`using event_pkey on event.*\n(\s+Index Cond: \(+version|\s+[^I\s])`)
	// readsHistory finds a plan that reads such a table at all.
	readsHistory = regexp.MustCompile(`Scan .*on (event|task|task_tag|timer)\b`)
)

// No statement of the API, of requests that wait, of streams, of tokens or of a subscriber reads the events, the tasks
// or the timers as a whole, by the statistics of a large ledger.
func TestPlansOfRequests(t *testing.T) {
	t.Parallel()
	b := servicetest.NewOn(t, ledgertest.Pool(t, ledgertest.Owner))
	plantest.Enlarge(t, b.DB)
	config := b.DB.Config()
	made := &statements{all: map[string][]any{}}
	config.ConnConfig.Tracer = made
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traced.Close)
	waiter, err := outbox.NewWaiter(outbox.WaiterConfig{DB: traced, NATS: b.Connect()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(waiter.Close)
	for _, change := range []func(*api.Config){nil, func(c *api.Config) { c.Waiter = waiter }} {
		s := serveOn(t, traced, change)
		s.requestAll()
		if _, err := b.DB.Exec(t.Context(), `update taskledger.token set revoked_at = clock_timestamp()`); err != nil {
			t.Fatal(err)
		}
	}
	subscribe(t, traced)
	b.Project()
	b.Await("the tasks are projected", func() bool { // a table without a page has no rows for the planner
		return servicetest.One[int](b, `select count(*)::integer from taskledger.tasks`) >= 4
	})
	made.check(t, b.DB)
}

// requestAll makes each call of the API that reads, and one of each that writes.
func (s *server) requestAll() {
	s.t.Helper()
	for _, call := range []struct{ method, path, body string }{
		{method: "POST", path: "/v1/tasks", body: `{"kind":"a.b","biz_id":"1"}`},
		{method: "POST", path: "/v1/tasks", body: `{"kind":"a.b","biz_id":"2","run_in":3600}`},
		{method: "POST", path: "/v1/tasks", body: `{"kind":"a.b","biz_id":"3",
			"after":{"keys":[{"kind":"a.b","biz_id":"1"}]}}`},
		{method: "POST", path: "/v1/tasks:batch", body: `{"tasks":[{"kind":"a.b","biz_id":"4"}]}`},
		{method: "GET", path: "/v1/tasks"}, {method: "GET", path: "/v1/tasks?kind=a.b"},
		{method: "GET", path: "/v1/tasks?kind=a.b&state=available"},
		{method: "GET", path: "/v1/tasks?tag=x"}, {method: "GET", path: "/v1/tasks?kind=a.b&state=dead&tag=x"},
		{method: "GET", path: "/v1/tasks?state=dead&after=7"},
		{method: "GET", path: "/v1/tasks/a.b/1?wait=1"}, {method: "GET", path: "/v1/tasks/a.b/1/events"},
		{method: "GET", path: "/v1/events?after=0"}, {method: "GET", path: "/v1/events?kind=a.b&type=enqueued"},
		{method: "GET", path: "/v1/kinds"}, {method: "GET", path: "/v1/stats?kind=a.b"},
		{method: "PUT", path: "/v1/limits/a.b", body: `{"max_running":5}`}, {method: "GET", path: "/v1/limits"},
		{method: "DELETE", path: "/v1/limits/a.b"}, {method: "GET", path: "/v1/status"},
		{method: "GET", path: "/v1/conditions"}, {method: "GET", path: "/v1/schedules"},
		{method: "GET", path: "/v1/subscribers"}, {method: "POST", path: "/v1/tasks/a.b/1:bury"},
		{method: "POST", path: "/v1/tasks/a.b/1:release"}, {method: "DELETE", path: "/v1/tasks/a.b/1"},
		{method: "POST", path: "/v1/tasks/a.b/1:release"},
	} {
		a := s.call(api.Admin, call.method, call.path, call.body)
		if a.status >= http.StatusMultipleChoices {
			s.t.Errorf("%s %s: %d %s", call.method, call.path, a.status, a.body)
		}
	}
	page := decode[struct {
		Items []ledger.Event
		Next  string
	}](s, s.call(api.Viewer, "GET", "/v1/events?limit=1", ""), http.StatusOK)
	s.call(api.Viewer, "GET", "/v1/events?after="+page.Next, "")
	position, err := json.Marshal(page.Items[0].Position)
	if err != nil {
		s.t.Fatal(err)
	}
	s.stream("", "").close()
	s.stream("", string(position)).want("a.b")
}

// subscribe runs a subscriber until it has handled events.
func subscribe(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	err := outbox.Subscribe(ctx, outbox.Subscription{DB: db, Name: "mails", From: outbox.Start{},
		Handle: func(context.Context, pgx.Tx, []ledger.Event) error {
			stop()
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
}

// check explains each statement that was made.
func (s *statements) check(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	plans := 0
	for sql, args := range s.all {
		if !strings.Contains(sql, "taskledger") || !strings.Contains(strings.ToLower(sql), "select") ||
			strings.HasPrefix(sql, "rollback;") { // and the reset of the session, which reads no table
			continue
		}
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(t.Context(), "explain (costs off) "+sql, args...)
		var plan []string
		if err == nil {
			plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		conn.Release()
		if err != nil {
			t.Fatalf("%v: %s", err, sql)
		}
		text := strings.Join(plan, "\n")
		if readsHistory.MatchString(text) {
			plans++
		}
		if scan.MatchString(text) || scanByKey.MatchString(text) {
			t.Errorf("%s\n%s", sql, text)
		}
	}
	t.Logf("%d statements, %d of them read events, tasks or timers", len(s.all), plans)
	if plans < 10 {
		t.Errorf("%d plans, want those of all calls", plans)
	}
}
