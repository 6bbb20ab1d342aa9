package console_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/console"
)

// A page without a database has the menu, and a cure for people: the cure of the API names a header, which no browser
// shows.
func TestPageWithoutADatabase(t *testing.T) {
	t.Parallel()
	db, err := pgxpool.New(t.Context(), "postgres://app@127.0.0.1:1/app?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	callers, err := api.New(api.Config{DB: db, Logger: log, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(callers.Drain)
	handler, err := console.New(console.Config{DB: db, API: callers, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	page := string(body)
	if answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "is PostgreSQL running?") ||
		strings.Contains(page, "Retry-After") || !strings.Contains(page, `href="/failures"`) {
		t.Errorf("status %d, and the page is %s", answer.StatusCode, page)
	}
}
