package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// databaseRoles are those of the API's login.
var databaseRoles = []string{"api", "reader", "producer", "operator"}

// server is an API that is served, and the callers of each role.
type server struct {
	t       testing.TB
	url     string
	db      *pgxpool.Pool
	handler *api.Handler
	http    *httptest.Server
	tokens  map[api.Role]string
}

// serve starts an API on a database of its own.
func serve(t testing.TB, change func(*api.Config)) *server {
	t.Helper()
	return serveOn(t, ledgertest.Pool(t, databaseRoles...), change)
}

func serveOn(t testing.TB, db *pgxpool.Pool, change func(*api.Config)) *server {
	t.Helper()
	config := api.Config{DB: db, Logger: slog.New(slog.NewTextHandler(logWriter{t}, nil))}
	if change != nil {
		change(&config)
	}
	handler, err := api.New(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, db: db, handler: handler, tokens: map[api.Role]string{}}
	s.http = httptest.NewUnstartedServer(handler)
	s.http.Config.ReadHeaderTimeout = api.ReadHeaderTimeout
	s.http.Config.MaxHeaderBytes = api.MaxHeaderBytes
	s.http.Start()
	s.url = s.http.URL
	t.Cleanup(func() {
		handler.Drain()
		s.http.Close()
	})
	for _, role := range api.Roles() {
		_, secret, err := api.CreateToken(t.Context(), db, api.TokenOptions{Name: "a-" + string(role), Role: role})
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[role] = secret
	}
	return s
}

type logWriter struct{ testing.TB }

func (w logWriter) Write(line []byte) (int, error) {
	w.Logf("%s", bytes.TrimSpace(line))
	return len(line), nil
}

// answer is an answer of the API.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends a request with the token of a role, and checks the answer. Headers are pairs.
func (s *server) call(role api.Role, method, path, body string, headers ...string) answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if secret, ok := s.tokens[role]; ok {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.send(r)
}

// send sends a request and checks the answer.
func (s *server) send(r *http.Request) answer {
	s.t.Helper()
	response, err := s.http.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{response.StatusCode, response.Header, body}
	a.check(s.t, r)
	return a
}

// check checks the form of an answer. TestAnswersMatchTheDocument of internal/systemtest/openapi compares it with the
// document.
func (a answer) check(t testing.TB, r *http.Request) {
	t.Helper()
	if n := len(a.body); n > 0 && a.body[n-1] != '\n' {
		t.Errorf("%s %s: the answer has no newline at its end: %s", r.Method, r.URL, a.body)
	}
	if a.status >= http.StatusBadRequest {
		var p client.Problem
		decoder := json.NewDecoder(bytes.NewReader(a.body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&p); err != nil || a.header.Get("Content-Type") != "application/problem+json" ||
			p.Status != a.status || p.Code == "" || p.Cure == "" || p.Detail == "" || p.Title == "" {
			t.Errorf("%s %s: %d %s is not a problem: %v", r.Method, r.URL, a.status, a.body, err)
		}
	}
	record(t, r, a)
}

// decode returns the body of an answer with a status.
func decode[T any](s *server, a answer, status int) (v T) {
	s.t.Helper()
	if a.status != status {
		s.t.Fatalf("got %d %s, want %d", a.status, a.body, status)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		s.t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

// wantProblem checks that an answer is a problem.
func (s *server) wantProblem(a answer, status int, code string) client.Problem {
	s.t.Helper()
	p := decode[client.Problem](s, a, status)
	if p.Code != code {
		s.t.Errorf("got the problem %s, want %s: %s", p.Code, code, p.Detail)
	}
	return p
}

func (s *server) task(text string) ledger.Task {
	s.t.Helper()
	t, err := ledger.Load(s.t.Context(), s.db, ledgertest.Key(s.t, text))
	if err != nil {
		s.t.Fatal(err)
	}
	return t
}

// owner returns a login that may append any event.
func (s *server) owner() *pgxpool.Pool { return ledgertest.As(s.t, s.db, ledgertest.Owner) }

// awaitWaiting waits until so many requests wait or stream.
func (s *server) awaitWaiting(n int) {
	s.t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		requests, users := s.handler.Waiting()
		if requests == n && (users == n || n == 0) {
			return
		}
		if time.Since(begun) > time.Minute {
			s.t.Fatalf("%d requests wait, want %d", requests, n)
		}
	}
}

// awaitWaitingAtLeast waits until so many requests wait or stream.
func (s *server) awaitWaitingAtLeast(n int) {
	s.t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if requests, _ := s.handler.Waiting(); requests >= n {
			return
		}
		if time.Since(begun) > time.Minute {
			s.t.Fatalf("fewer than %d requests wait", n)
		}
	}
}

// widerPool returns a pool of the same login with more connections.
func widerPool(t testing.TB, db *pgxpool.Pool, connections int32) *pgxpool.Pool {
	t.Helper()
	config := db.Config()
	config.MaxConns = connections
	wider, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wider.Close)
	return wider
}
