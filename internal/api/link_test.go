package api_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Of several requests that redeem a link at the same time, one gets a session. The link itself admits no request, and
// the database contains neither secret.
func TestLinkIsRedeemedOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	made, link, err := api.CreateLink(t.Context(), s.db, api.TokenOptions{Name: "ada", Role: api.Operator})
	if err != nil || !api.IsLink(link) {
		t.Fatal(link, err)
	}
	if d := time.Until(made.LinkUntil); d <= 0 || d > api.LinkAge {
		t.Errorf("the link works for %v", d)
	}
	if d := time.Until(made.ExpiresAt); d <= api.SessionAge-time.Hour || d > api.SessionAge {
		t.Errorf("the session works for %v", d)
	}
	s.tokens["link"] = link
	s.wantProblem(s.call("link", "GET", "/version", ""), http.StatusUnauthorized, "unauthenticated")

	const requests = 8
	sessions := make([]string, requests)
	var group sync.WaitGroup
	for i := range requests {
		group.Go(func() {
			if sessions[i], err = s.handler.RedeemLink(t.Context(), link); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	session := strings.Join(sessions, "")
	if strings.Count(session, "tlk_") != 1 {
		t.Fatalf("the sessions are %q", sessions)
	}
	s.tokens["session"] = session
	if a := s.call("session", "GET", "/version", ""); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.tokens["disguised"] = "tlk_" + strings.TrimPrefix(link, "tll_")
	for _, wrong := range []api.Role{"link", "disguised"} {
		s.wantProblem(s.call(wrong, "GET", "/version", ""), http.StatusUnauthorized, "unauthenticated")
	}
	var stored string
	err = s.db.QueryRow(t.Context(), `select string_agg(t::text, ' ') from taskledger.token t`).Scan(&stored)
	if err != nil || strings.Contains(stored, link[len(link)-20:]) ||
		strings.Contains(stored, session[len(session)-20:]) {
		t.Errorf("%v: %s", err, stored)
	}
	if ok, err := api.RevokeToken(t.Context(), s.db, made.ID, "op"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	fresh := serveOn(t, s.db, nil)
	fresh.tokens["session"] = session
	fresh.wantProblem(fresh.call("session", "GET", "/version", ""), http.StatusUnauthorized, "unauthenticated")
}

// A link that has expired or was revoked, or whose secret is wrong, gives no session.
func TestLinkIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	create := func() (id, link string) {
		made, link, err := api.CreateLink(t.Context(), s.db, api.TokenOptions{Name: "ada", Role: api.Viewer})
		if err != nil {
			t.Fatal(err)
		}
		return made.ID, link
	}
	refused := func(about, link string) {
		t.Helper()
		if secret, err := s.handler.RedeemLink(t.Context(), link); secret != "" || err != nil {
			t.Errorf("%s: got %q, %v", about, secret, err)
		}
	}
	id, expired := create()
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.token set link_until = clock_timestamp() where id = '`+id+`'`)
	refused("expired", expired)
	id, revoked := create()
	if ok, err := api.RevokeToken(t.Context(), s.db, id, "op"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	refused("revoked", revoked)
	_, valid := create()
	for _, wrong := range []string{"", "tll_", valid + "x", valid[:len(valid)-1] + "_", valid + "\x00",
		valid[:len(valid)-1] + "1", strings.Replace(valid, "tll_", "tlk_", 1)} {
		refused(wrong, wrong)
	}
	_, token, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "ada", Role: api.Viewer})
	if err != nil {
		t.Fatal(err)
	}
	refused("a token", token)
	if secret, err := s.handler.RedeemLink(t.Context(), valid); secret == "" || err != nil {
		t.Errorf("the valid link: %q, %v", secret, err)
	}
	if _, _, err := api.CreateLink(t.Context(), s.db, api.TokenOptions{Name: "a", Role: api.Viewer,
		NoSecret: true}); err == nil {
		t.Error("a link without a secret is valid")
	}
}
