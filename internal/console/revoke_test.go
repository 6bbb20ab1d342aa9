package console_test

import (
	"bufio"
	"net/http"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// revoke revokes all tokens.
func revoke(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	all, err := api.ReadTokens(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range all {
		if ok, err := api.RevokeToken(t.Context(), ledgertest.As(t, db, "operator"), token.ID, ""); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
}

// The stream of a page ends when its token is revoked; the page and its form then ask to sign in.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := ledgertest.Key(t, "coupon.send/order-1")
	ledgertest.Enqueue(t, s.db, key, `{}`)
	s.project()
	b := s.as(api.Operator)
	form := url.Values{"csrf": {token(t, b.get("/tasks"))}, "act": {"cancel"}, "confirm": {"yes"},
		"reason": {"ordered twice"}, "key": {keyOf(key)}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	revoke(t, s.db)
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); { // until the stream ends
	}
	b.want(b.post("/act", form), http.StatusUnauthorized, "Your session has ended. Nothing was changed.",
		"Enter a token, and try again.")
	b.want(b.get("/tasks"), http.StatusUnauthorized)
	b.want(b.get("/stream"), http.StatusUnauthorized)
	if got, err := ledger.Load(t.Context(), s.db, key); err != nil || got.State != ledger.StateAvailable {
		t.Errorf("got the task %v, %v", got, err)
	}
}
