package api_test

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A token that is revoked, or that expires, ends its open streams, and its request that waits gets no answer about a
// task. The streams of others stay open.
func TestRevokedCallersGetNothingMore(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	create := func(o api.TokenOptions) (id, secret string) {
		t.Helper()
		o.Name, o.Role = "till", api.Viewer
		made, secret, err := api.CreateToken(t.Context(), s.db, o)
		if err != nil {
			t.Fatal(err)
		}
		return made.ID, secret
	}
	expiresAt := time.Now().Add(5 * time.Second)
	var open []*reader
	_, expiring := create(api.TokenOptions{ExpiresAt: expiresAt})
	revoked, secret := create(api.TokenOptions{})
	s.tokens["till"] = secret
	other := s.stream("", "") // the tokens are read now
	valid := s.tokens[api.Viewer]
	for _, secret := range []string{expiring, secret} {
		s.tokens[api.Viewer] = secret
		open = append(open, s.stream("", ""), s.stream("?after=0&kind=none", ""))
	}
	s.tokens[api.Viewer] = valid
	k := ledger.Key{Kind: "a.b", BizID: "1"}
	ledgertest.Enqueue(t, s.db, k, `{}`)
	waited := make(chan answer, 1)
	go func() { waited <- s.call("till", "GET", "/v1/tasks/a.b/1?wait=60", "") }()
	s.awaitWaiting(6)
	if ok, err := api.RevokeToken(t.Context(), s.db, revoked, ""); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, r := range open {
		for _, _, ok := r.next(); ok; _, _, ok = r.next() {
		}
	}
	if time.Now().Before(expiresAt) {
		t.Error("the stream of a valid token has ended")
	}
	s.wantProblem(s.call("till", "GET", "/version", ""), http.StatusUnauthorized, "unauthenticated")
	ledgertest.Append(t, s.owner(), k, ledger.EventCancelled)
	s.wantProblem(<-waited, http.StatusUnauthorized, "unauthenticated")
	other.want(`"version":1`)
	other.want(`"version":2`)
}

// A caller that a proxy names has not the role of callers without a token once its own one has been revoked or has
// expired. The newest token of a name counts.
func TestRevokedCallersOfAProxy(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	create := func(name string, expiresAt time.Time) (id string) {
		t.Helper()
		made, _, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: name, Role: api.Viewer,
			Kinds: []string{"mail"}, NoSecret: true, ExpiresAt: expiresAt})
		if err != nil {
			t.Fatal(err)
		}
		return made.ID
	}
	create("expired", time.Now().Add(time.Second))
	for _, name := range []string{"revoked", "made-again"} {
		if ok, err := api.RevokeToken(t.Context(), s.db, create(name, time.Time{}), ""); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	create("made-again", time.Time{})
	proxied := serveOn(t, s.db, func(c *api.Config) {
		c.Proxy = api.Proxy{From: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Role: api.Admin}
	})
	status := func(name string) int {
		return proxied.call("", "GET", "/v1/tasks?kind=a.b", "", "X-Forwarded-User", name).status
	}
	for begun := time.Now(); status("expired") == http.StatusForbidden; time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > ioTimeout {
			t.Fatal("the token does not expire")
		}
	}
	for name, want := range map[string]int{"unknown": 200, "expired": 401, "revoked": 401, "made-again": 403} {
		if got := status(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
