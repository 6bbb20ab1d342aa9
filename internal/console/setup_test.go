package console_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/console"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// databaseRoles are those of the console's login.
var databaseRoles = []string{"api", "reader", "producer", "operator"}

// site is a console that is served.
type site struct {
	t   testing.TB
	url string
	db  *pgxpool.Pool

	isUnsafe atomic.Bool // a check fails
}

func serve(t testing.TB) *site {
	t.Helper()
	return serveWith(t, func(*api.Config) {})
}

// serveWith is serve with another configuration of the API.
func serveWith(t testing.TB, change func(*api.Config)) *site {
	t.Helper()
	db := ledgertest.Pool(t, databaseRoles...)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c := api.Config{DB: db, Logger: log}
	change(&c)
	callers, err := api.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, db: db}
	checks := func(context.Context) []console.Check {
		all := []console.Check{{Name: "fsync", Level: console.CheckOK, Text: "fsync on"},
			{Name: "clock", Level: console.CheckWarning, Text: "PostgreSQL is <2 h> ahead",
				Cure: "synchronize the clocks"}}
		if s.isUnsafe.Load() {
			all = append(all, console.Check{Name: "fsync", Level: console.CheckFailure, Text: "fsync <off>",
				Cure: "set fsync to on"})
		}
		return all
	}
	handler, err := console.New(console.Config{DB: db, API: callers, Logger: log, Checks: checks,
		TraceURL: "https://traces.example/{trace_id}?from=ledger"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		callers.Drain()
		server.Close()
	})
	s.url = server.URL
	return s
}

// project applies all events to the projection.
func (s *site) project() {
	s.t.Helper()
	p, err := projector.New(projector.Config{DB: ledgertest.As(s.t, s.db, "relay")})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		lag, err := projection.ReadLag(s.t.Context(), s.db)
		if err == nil && lag.Events == 0 {
			break
		}
		if time.Since(begun) > time.Minute {
			s.t.Fatal("the projection does not follow")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
}

// browser is a client with cookies.
type browser struct {
	*site
	client *http.Client
}

// page is an answer.
type page struct {
	status int
	header http.Header
	body   string
	at     *url.URL // after redirections
}

// content returns what is in the body of a page below its title.
func (p page) content() string {
	_, content, _ := strings.Cut(p.body, `id="content"`)
	return content
}

// anyone returns a browser without a session.
func (s *site) anyone() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &browser{s, &http.Client{Jar: jar}}
}

// as returns a browser that has signed in with a new token of a role.
func (s *site) as(role api.Role, kinds ...string) *browser {
	s.t.Helper()
	_, secret, err := api.CreateToken(s.t.Context(), s.db, api.TokenOptions{Name: "ada-" + string(role), Role: role,
		Kinds: kinds})
	if err != nil {
		s.t.Fatal(err)
	}
	b := s.anyone()
	for b.signIn(secret).status == http.StatusUnauthorized { // until the API reads its tokens again
	}
	return b
}

func (b *browser) signIn(secret string) page {
	b.t.Helper()
	return b.post("/sign-in", url.Values{"csrf": {token(b.t, b.get("/sign-in"))}, "token": {secret}})
}

func (b *browser) get(path string) page { return b.do(http.MethodGet, path, nil) }

func (b *browser) post(path string, form url.Values) page {
	b.t.Helper()
	return b.do(http.MethodPost, path, form)
}

func (b *browser) do(method, path string, form url.Values) page {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return page{answer.StatusCode, answer.Header, string(body), answer.Request.URL}
}

// want checks the status and texts of a page.
func (b *browser) want(p page, status int, texts ...string) {
	b.t.Helper()
	if p.status != status {
		b.t.Errorf("got the status %d, want %d:\n%s", p.status, status, p.content())
	}
	for _, text := range texts {
		if !strings.Contains(p.body, text) {
			b.t.Errorf("the page has not %q:\n%s", text, p.content())
		}
	}
}

var tokenField = regexp.MustCompile(`name="csrf" value="([0-9a-f]{64})"`)

// token returns the token of the last form of a page.
func token(t testing.TB, p page) string {
	t.Helper()
	all := tokenField.FindAllStringSubmatch(p.body, -1)
	if all == nil {
		t.Fatalf("no form: %s", p.body)
	}
	return all[len(all)-1][1]
}
