package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/console"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
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

// scan finds a table that grows with the history, read as a whole.
var scan = regexp.MustCompile(`Seq Scan on (event|task|task_tag|timer)\b`)

// No statement of a page reads the events, the tasks or the timers as a whole, by the statistics of a large ledger.
func TestPlansOfPages(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.Owner)
	plantest.Enlarge(t, db)
	config := db.Config()
	made := &statements{all: map[string][]any{}}
	config.ConnConfig.Tracer = made
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer traced.Close()
	callers, err := api.New(api.Config{DB: traced})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := console.New(console.Config{DB: traced, API: callers})
	if err != nil {
		t.Fatal(err)
	}
	k := ledger.Key{Kind: "a", BizID: "x"}
	ledgertest.Enqueue(t, db, k, `{}`)
	_, err = ledger.Enqueue(t.Context(), db, ledger.Key{Kind: "a", BizID: "later"}, nil,
		&ledger.EnqueueOptions{RunIn: time.Hour, Meta: ledger.Meta{Tags: []string{"vip"}}})
	if err != nil {
		t.Fatal(err)
	}
	lined := ledger.Key{Kind: "a", BizID: "lined"}
	_, err = ledger.Enqueue(t.Context(), db, lined, nil, &ledger.EnqueueOptions{OrderKey: "customer/17"})
	if err == nil {
		err = subscribers.Seek(t.Context(), db, "paused", feed.After(0), "", "")
	}
	if err == nil {
		err = subscribers.Pause(t.Context(), db, "paused", true, "", "x")
	}
	if err != nil {
		t.Fatal(err)
	}
	(&site{t: t, db: db}).project() // a table without a page has no rows for the planner
	_, secret, err := api.CreateToken(t.Context(), db, api.TokenOptions{Name: "ada", Role: api.Viewer})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/?range=7d&by=kind", "/find?q=x", "/find?q=a/x", "/tasks",
		"/tasks?prefix=x", "/tasks?state=dead", "/tasks?state=running",
		"/tasks?line=customer/17", "/tasks?tag=vip", "/tasks?tag=vip&kind=a&state=dead&prefix=x",
		"/task?" + keyOf(k), "/task?" + keyOf(lined),
		"/failures", "/kinds", "/kind?name=a&range=24h", "/workers", "/schedules",
		"/subscribers", "/events",
		"/events?prefix=a/x&type=failed&actor=b&before=100", "/system"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
		}
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	b := (&site{t: t, url: server.URL, db: db}).as(api.Operator)
	form := url.Values{"csrf": {token(t, b.get("/tasks?state=scheduled"))}, "act": {"cancel"}, "state": {"scheduled"},
		"kind": {"a"}, "reason": {"x"}}
	b.want(b.post("/bulk", form), http.StatusOK, "1 tasks match")
	form.Set("confirm", "yes")
	b.want(b.post("/bulk", form), http.StatusOK, "1 tasks were changed")
	plans := 0
	for sql, args := range made.all {
		if !strings.Contains(sql, "taskledger") || !strings.Contains(strings.ToLower(sql), "select") {
			continue
		}
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(t.Context(), "explain (costs off) "+sql, args...)
		if err != nil {
			conn.Release()
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		conn.Release()
		if err != nil {
			t.Fatalf("%v: %s", err, sql)
		}
		plans++
		if text := strings.Join(plan, "\n"); scan.MatchString(text) {
			t.Errorf("%s\n%s", sql, text)
		}
	}
	if plans < 15 {
		t.Errorf("%d plans, want those of all pages", plans)
	}
}
