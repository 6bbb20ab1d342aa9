package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/api"
	"github.com/taskledger/taskledger/api/client"
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
	for _, role := range []api.Role{api.Viewer, api.Producer, api.Operator, api.Admin} {
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

// call sends a request with the token of a role, and checks the answer against the document. Headers are pairs.
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

// send sends a request and checks the answer against the document.
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

// check compares an answer with the document.
func (a answer) check(t testing.TB, r *http.Request) {
	t.Helper()
	if n := len(a.body); n > 0 && a.body[n-1] != '\n' {
		t.Errorf("%s %s: the answer has no newline at its end: %s", r.Method, r.URL, a.body)
	}
	d := readDocument(t)
	route := d.find(r)
	if a.status >= http.StatusBadRequest {
		var p client.Problem
		decoder := json.NewDecoder(bytes.NewReader(a.body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&p); err != nil || a.header.Get("Content-Type") != "application/problem+json" ||
			p.Status != a.status || p.Code == "" || p.Cure == "" || p.Detail == "" || p.Title == "" {
			t.Errorf("%s %s: %d %s is not a problem: %v", r.Method, r.URL, a.status, a.body, err)
		}
	}
	if route == nil {
		if a.status < http.StatusBadRequest {
			t.Errorf("%s %s: %d, and the document does not have the call", r.Method, r.URL, a.status)
		}
		return
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: route},
		Status:                 a.status, Header: a.header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	if a.status == http.StatusNotModified || strings.HasPrefix(a.header.Get("Content-Type"), "text/") {
		return
	}
	input.SetBodyBytes(a.body)
	if err := openapi3filter.ValidateResponse(t.Context(), input); err != nil {
		t.Errorf("%s %s: %d %s does not match the document: %v", r.Method, r.URL, a.status, a.body, err)
	}
}

// document is the description of the API.
type document struct {
	*openapi3.T
	paths []documentedPath
}

type documentedPath struct {
	path    string
	pattern *regexp.Regexp // of the escaped path
	item    *openapi3.PathItem
}

var readDocumentOnce = sync.OnceValues(func() (*document, error) {
	loaded, err := openapi3.NewLoader().LoadFromData(api.Document())
	if err != nil {
		return nil, err
	}
	if err := loaded.Validate(context.Background()); err != nil {
		return nil, err
	}
	d := &document{T: loaded}
	parameter := regexp.MustCompile(`\\\{\w+\\\}`)
	for _, path := range loaded.Paths.InMatchingOrder() {
		pattern := regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`) + "$")
		d.paths = append(d.paths, documentedPath{path, pattern, loaded.Paths.Value(path)})
	}
	return d, nil
})

func readDocument(t testing.TB) *document {
	t.Helper()
	d, err := readDocumentOnce()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// find returns the call of a request, or nil.
func (d *document) find(r *http.Request) *routers.Route {
	var best *routers.Route
	for _, p := range d.paths {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		operation := p.item.GetOperation(method)
		if operation == nil || !p.pattern.MatchString(r.URL.EscapedPath()) {
			continue
		}
		if best == nil || len(p.path) > len(best.Path) {
			best = &routers.Route{Spec: d.T, Path: p.path, PathItem: p.item, Method: method, Operation: operation}
		}
	}
	return best
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
