package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/console"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Browsers take a cookie of the console with TLS from no other host of its domain.
func TestCookiesWithTLS(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, databaseRoles...)
	callers, err := api.New(api.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(callers.Drain)
	for base, want := range map[string]string{"/": "__Host-taskledger_form=", "/ops/": "__Secure-taskledger_form="} {
		handler, err := console.New(console.Config{DB: db, API: callers, Base: base, IsBehindTLS: true})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, base+"sign-in", nil))
		got := w.Header().Get("Set-Cookie")
		if !strings.HasPrefix(got, want) || !strings.Contains(got, "Path="+base+"; HttpOnly; Secure; SameSite=Strict") {
			t.Errorf("%s: got the cookie %q", base, got)
		}
	}
}
