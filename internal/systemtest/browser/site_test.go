package browser_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/console"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// databaseRoles are those of the console's login.
var databaseRoles = []string{"api", "reader", "producer", "operator"}

// site is a console that is served.
type site struct {
	t   testing.TB
	url string
	db  *pgxpool.Pool
}

func serve(t testing.TB) *site {
	t.Helper()
	db := ledgertest.Pool(t, databaseRoles...)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	callers, err := api.New(api.Config{DB: db, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := console.New(console.Config{DB: db, API: callers, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		callers.Drain()
		server.Close()
	})
	return &site{t: t, url: server.URL, db: db}
}

// project applies all events to the projection.
func (s *site) project() {
	s.t.Helper()
	servicetest.NewDatabaseOn(s.t, s.db).Project()
}

var tokenField = regexp.MustCompile(`name="csrf" value="([0-9a-f]{64})"`)

// admits reports whether a token can sign in.
func (s *site) admits(secret string) bool {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	form, err := client.Get(s.url + "/sign-in")
	if err != nil {
		s.t.Fatal(err)
	}
	defer form.Body.Close()
	body, err := io.ReadAll(form.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	field := tokenField.FindSubmatch(body)
	if field == nil {
		s.t.Fatalf("no form: %s", body)
	}
	answer, err := client.PostForm(s.url+"/sign-in", url.Values{"csrf": {string(field[1])}, "token": {secret}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode != http.StatusUnauthorized
}

// keyOf returns the query of a task's page.
func keyOf(k ledger.Key) string {
	return url.Values{"kind": {string(k.Kind)}, "biz_id": {string(k.BizID)}}.Encode()
}
