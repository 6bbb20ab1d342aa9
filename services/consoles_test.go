package services_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// A program mounts the console over two ledgers below a path, and every fault of their configuration names its ledger.
func TestConsoles(t *testing.T) {
	t.Parallel()
	of := func(change func(*services.HandlerConfig)) services.HandlerConfig {
		c := services.HandlerConfig{DB: ledgertest.Pool(t, "api", "reader", "producer", "operator")}
		change(&c)
		return c
	}
	both := map[string]services.HandlerConfig{
		"shop": of(func(*services.HandlerConfig) {}),
		"mail": of(func(c *services.HandlerConfig) { c.Anonymous = true }),
	}
	consoles, err := services.NewConsoles("/ops/", both)
	if err != nil {
		t.Fatal(err)
	}
	defer consoles.Drain()
	server := httptest.NewServer(consoles)
	defer server.Close()
	for path, want := range map[string]int{
		"/ops/": http.StatusOK, "/ops/ledgers/mail/": http.StatusOK, "/ops/ledgers/shop/": http.StatusUnauthorized,
		"/": http.StatusNotFound, "/ledgers/mail/": http.StatusNotFound,
		"/ops/ledgers/mail/v1/tasks": http.StatusNotFound,
	} {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if _ = answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, answer.StatusCode, want)
		}
	}
	_, err = services.NewConsoles("/", map[string]services.HandlerConfig{
		"no-database": {}, "../x": both["shop"], "no-work": of(func(c *services.HandlerConfig) { c.WorkDB = c.DB }),
	})
	for _, want := range []string{"ledger no-database: ", `got "../x"`, "ledger no-work: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q: %v", want, err)
		}
	}
	if _, err := services.NewConsoles("ops", both); err == nil || !strings.Contains(err.Error(), "Base must begin") {
		t.Errorf("got %v", err)
	}
	if _, err := services.NewConsoles("/", nil); err == nil || !strings.Contains(err.Error(), "no ledger") {
		t.Errorf("got %v", err)
	}
}
