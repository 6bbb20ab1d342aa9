package services_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// A handler without services answers the state of the ledger and the pages of the console, below its base.
func TestHandlerWithoutServices(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "producer", "operator")
	handler, err := services.NewHandler(services.HandlerConfig{DB: db, Base: "/tasks/", Version: "v9",
		Checks: func(context.Context) []services.Check {
			return []services.Check{{Name: "fsync", Level: "failure", Text: "fsync is off", Cure: "turn it on"}}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Drain()
	_, token, err := services.CreateToken(t.Context(), db, services.TokenOptions{Name: "ada", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		if answer.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
		return answer.Body.String()
	}
	for path, want := range map[string]string{
		"/v1/status": `"relay_stopped"`, "/version": `"v9"`, "/tasks/system": "fsync is off", "/tasks/": "relay",
	} {
		if text := get(path); !strings.Contains(text, want) {
			t.Errorf("%s has no %s:\n%s", path, want, text)
		}
	}
	text, err := services.ReadTokens(t.Context(), db)
	var tokens []struct{ ID, Name, Role string }
	if err == nil {
		err = json.Unmarshal(text, &tokens)
	}
	if err != nil || len(tokens) != 1 || tokens[0].Name != "ada" || tokens[0].Role != "admin" {
		t.Errorf("%+v %v", tokens, err)
	}
	if revoked, err := services.RevokeToken(t.Context(), db, tokens[0].ID, "ada"); !revoked || err != nil {
		t.Errorf("revoked %t, %v", revoked, err)
	}
	if _, err := handler.Admit(httptest.NewRequest(http.MethodGet, "/", nil), "viewer"); err == nil {
		t.Error("a request without a token was admitted")
	}
	if err := handler.PushTasks(t.Context(), []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "WorkDB") {
		t.Errorf("got %v", err)
	}
}

// A handler gives out work if it has connections for that.
func TestHandlerGivesWork(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "api", "reader", "worker", "operator")
	broker, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	nc, err := nats.Connect(broker.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	_, token, err := services.CreateToken(t.Context(), db, services.TokenOptions{Name: "mailer", Role: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		config services.HandlerConfig
		want   string
	}{
		{
			config: services.HandlerConfig{DB: db, WorkDB: ledgertest.As(t, db, "worker"), WorkNATS: nc},
			want:   `"tasks":[]`,
		},
		{config: services.HandlerConfig{DB: db}, want: "this server gives out no work"},
	} {
		handler, err := services.NewHandler(test.config)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/v1/work", strings.NewReader(
			`{"worker": "w", "session": "0123456789abcdef", "kinds": ["mail.send"], "limit": 1, "wait": 0}`))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		if !strings.Contains(answer.Body.String(), test.want) {
			t.Errorf("%d %s, want %s", answer.Code, answer.Body, test.want)
		}
		handler.Drain()
	}
}

// NewHandler names each fault.
func TestHandlerConfigNamesEachFault(t *testing.T) {
	t.Parallel()
	_, err := services.NewHandler(services.HandlerConfig{Rate: -1, Base: "tasks", Proxy: services.Proxy{Role: "boss"},
		WorkDB: ledgertest.Pool(t, "worker")})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"DB is required", "Rate must not be negative, got -1", `Proxy.Role must be viewer, producer,`,
		"Base must begin and end with one slash", "WorkDB and WorkNATS must be set together",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nhas no %q", err, want)
		}
	}
}
