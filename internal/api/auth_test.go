package api_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Each call with each role: those below the role that a call needs are refused, and the others are not.
func TestRoles(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	path := strings.NewReplacer("{kind}", "a.b", "{biz_id}", "1", "{change}", "1:release", "{name}", "a.b")
	for pattern, least := range api.Operations() {
		method, route, _ := strings.Cut(pattern, " ")
		target := path.Replace(route)
		if strings.HasPrefix(target, "/v1/kinds/") {
			target = "/v1/kinds/a.b:pause"
		}
		s.wantProblem(s.call("", method, target, ""), http.StatusUnauthorized, "unauthenticated")
		isAllowed := false
		for _, role := range api.Roles() {
			isAllowed = isAllowed || role == least
			a := s.call(role, method, target, "")
			if isAllowed && (a.status == http.StatusForbidden || a.status == http.StatusUnauthorized ||
				a.status >= http.StatusInternalServerError) {
				t.Errorf("%s as %s: %d %s", pattern, role, a.status, a.body)
			}
			if !isAllowed {
				s.wantProblem(a, http.StatusForbidden, "forbidden")
			}
		}
	}
}

// A caller that is limited to kinds neither sees nor changes the tasks of others.
func TestKindsOfACaller(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "shop", Role: api.Admin,
		Kinds: []string{"coupon.*", "mail"}})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["shop"] = secret
	for _, kind := range []ledger.Kind{"coupon.send", "mail", "mail.send", "coupons"} {
		ledgertest.Enqueue(t, s.db, ledger.Key{Kind: kind, BizID: "1"}, `{}`)
	}
	allowed := map[string]bool{"coupon.send": true, "mail": true, "mail.send": false, "coupons": false}
	for kind, isAllowed := range allowed {
		for _, call := range []struct{ method, path, body string }{
			{method: "GET", path: "/v1/tasks/" + kind + "/1", body: ""},
			{method: "GET", path: "/v1/tasks/" + kind + "/1/events", body: ""},
			{method: "GET", path: "/v1/tasks?kind=" + kind, body: ""},
			{method: "GET", path: "/v1/stats?kind=" + kind, body: ""},
			{method: "POST", path: "/v1/tasks", body: `{"kind":"` + kind + `","biz_id":"2"}`},
			{method: "POST", path: "/v1/tasks:batch", body: `{"tasks":[{"kind":"` + kind + `","biz_id":"3"}]}`},
			{method: "POST", path: "/v1/tasks/" + kind + "/1:bury", body: ""},
			{method: "DELETE", path: "/v1/tasks/" + kind + "/2", body: ""},
			{method: "POST", path: "/v1/kinds/" + kind + ":resume", body: ""},
		} {
			a := s.call("shop", call.method, call.path, call.body)
			if isAllowed && a.status >= 300 {
				t.Errorf("%s %s: %d %s", call.method, call.path, a.status, a.body)
			}
			if !isAllowed {
				s.wantProblem(a, http.StatusForbidden, "kind_forbidden")
			}
		}
	}
	page := s.call("shop", "GET", "/v1/events?limit=1000", "")
	if body := string(page.body); page.status != 200 || strings.Contains(body, `"coupons"`) ||
		strings.Contains(body, `"mail.send"`) || !strings.Contains(body, `"coupon.send"`) {
		t.Errorf("events: %d %s", page.status, body)
	}
}

// A token works until it expires or is revoked. Its secret is stored nowhere.
func TestTokens(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	o := api.TokenOptions{Name: "till-7", Role: api.Viewer, Rate: 2}
	made, secret, err := api.CreateToken(t.Context(), s.db, o)
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["till"] = secret
	s.handler.StopClock()
	var stored string
	err = s.db.QueryRow(t.Context(), `select string_agg(t::text, ' ') from taskledger.token t`).Scan(&stored)
	if err != nil || !strings.Contains(stored, "till-7") || strings.Contains(stored, secret[len(secret)-20:]) {
		t.Errorf("%v: %s", err, stored)
	}
	for range 2 {
		if a := s.call("till", "GET", "/version", ""); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	limited := s.call("till", "GET", "/version", "")
	if s.wantProblem(limited, http.StatusTooManyRequests, "rate"); limited.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", limited.header.Get("Retry-After"))
	}
	for _, wrong := range []string{
		secret + "x", secret[:len(secret)-1], strings.ToUpper(secret), "tlk__", "tlk_x", "",
	} {
		s.tokens["wrong"] = wrong
		s.wantProblem(s.call("wrong", "GET", "/version", ""), http.StatusUnauthorized, "unauthenticated")
	}
	s.wantProblem(s.call("", "GET", "/version", "", "Authorization", "Basic eDp5"), http.StatusUnauthorized,
		"unauthenticated")
	if ok, err := api.RevokeToken(t.Context(), s.db, made.ID, "op"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	fresh := serveOn(t, s.db, nil) // a server that has not read the tokens before
	fresh.tokens["till"] = secret
	fresh.wantProblem(fresh.call("till", "GET", "/version", ""), http.StatusUnauthorized, "unauthenticated")
	all, err := api.ReadTokens(t.Context(), s.db)
	if err != nil || len(all) != 2*len(api.Roles())+1 {
		t.Errorf("%v: %+v", err, all)
	}
	for _, o := range []api.TokenOptions{
		{Name: "", Role: api.Viewer}, {Name: "schedule/x", Role: api.Viewer}, {Name: "a", Role: "root"},
		{Name: "a", Role: api.Viewer, Kinds: []string{"*"}}, {Name: "a", Role: api.Viewer, Rate: -1},
	} {
		if _, _, err := api.CreateToken(t.Context(), s.db, o); err == nil {
			t.Errorf("%+v is valid", o)
		}
	}
}

// Without authentication the API serves connections of the machine alone, and no page of another site.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.Anonymous = true })
	if a := s.call("", "POST", "/v1/tasks", `{"kind":"a.b","biz_id":"1"}`); a.status != http.StatusCreated {
		t.Errorf("%d %s", a.status, a.body)
	}
	if task := s.task("a.b/1"); task.Actor != "anonymous" {
		t.Errorf("actor %s", task.Actor)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "attacker.example" // whose name resolves to 127.0.0.1
	s.wantProblem(s.send(r), http.StatusUnauthorized, "unauthenticated")
	proxied := s.call("", "GET", "/version", "", "X-Forwarded-For", "192.0.2.1")
	s.wantProblem(proxied, http.StatusUnauthorized, "unauthenticated")
}

// The header of a proxy counts if the peer is the proxy, and its callers need a token without a secret or a role.
func TestProxy(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) {
		c.Proxy = api.Proxy{From: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	})
	user := func(s *server, name string) answer {
		return s.call("", "POST", "/v1/tasks", `{"kind":"a.b","biz_id":"`+name+`"}`, "X-Forwarded-User", name)
	}
	s.wantProblem(user(s, "alice"), http.StatusUnauthorized, "unauthenticated")
	o := api.TokenOptions{Name: "bob", Role: api.Producer, NoSecret: true}
	if _, secret, err := api.CreateToken(t.Context(), s.db, o); err != nil || secret != "" {
		t.Fatal(secret, err)
	}
	if _, _, err := api.CreateToken(t.Context(), s.db, o); err == nil {
		t.Error("two callers have one name")
	}
	trusted := serveOn(t, s.db, func(c *api.Config) {
		c.Proxy = api.Proxy{From: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Role: api.Viewer}
	})
	if a := user(trusted, "bob"); a.status != http.StatusCreated || s.task("a.b/bob").Actor != "bob" {
		t.Errorf("bob: %d %s", a.status, a.body)
	}
	trusted.wantProblem(user(trusted, "alice"), http.StatusForbidden, "forbidden")
	far := serveOn(t, s.db, func(c *api.Config) {
		c.Proxy = api.Proxy{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Role: api.Admin}
	})
	far.wantProblem(user(far, "bob"), http.StatusUnauthorized, "unauthenticated")
}

// A page of another origin changes nothing, and gets no header of CORS.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.Anonymous = true })
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://attacker.example"}} {
		a := s.call("", "POST", "/v1/tasks", `{"kind":"a.b","biz_id":"1"}`, headers...)
		s.wantProblem(a, http.StatusForbidden, "cross_origin")
		if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Error("CORS is on")
		}
	}
	a := s.call("", "POST", "/v1/tasks", `{"kind":"a.b","biz_id":"1"}`, "Sec-Fetch-Site", "same-origin")
	if a.status != http.StatusCreated {
		t.Errorf("same origin: %d", a.status)
	}
}

// A login without the right of a call makes it 403 with the role to grant.
func TestLeastDatabaseRights(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, databaseRoles...)
	all := serveOn(t, db, nil)
	s := serveOn(t, ledgertest.As(t, db, "api", "reader", "operator"), nil) // operator makes the tokens of the test
	s.db.Close()
	reading := ledgertest.As(t, db, "api", "reader")
	handler, err := api.New(api.Config{DB: reading})
	if err != nil {
		t.Fatal(err)
	}
	s.http.Config.Handler, s.tokens, s.db = handler, all.tokens, reading
	for _, call := range []struct {
		method, path, body string
		status             int
	}{
		{method: "GET", path: "/v1/tasks", body: "", status: 200},
		{method: "GET", path: "/v1/events", body: "", status: 200},
		{method: "GET", path: "/v1/kinds", body: "", status: 200},
		{method: "GET", path: "/v1/limits", body: "", status: 200},
		{method: "PUT", path: "/v1/limits/a.b", body: `{"max_running":1}`, status: 403},
		{method: "DELETE", path: "/v1/limits/a.b", body: "", status: 403},
		{method: "GET", path: "/v1/workers", body: "", status: 200},
		{method: "GET", path: "/v1/schedules", body: "", status: 200},
		{method: "GET", path: "/v1/subscribers", body: "", status: 200},
		{method: "GET", path: "/v1/stats?kind=a", body: "", status: 200},
		{method: "POST", path: "/v1/tasks", body: `{"kind":"a.b","biz_id":"1"}`, status: 403},
		{method: "POST", path: "/v1/kinds/a:pause", body: ``, status: 403},
	} {
		a := s.call(api.Admin, call.method, call.path, call.body)
		if a.status != call.status {
			t.Errorf("%s %s: %d %s", call.method, call.path, a.status, a.body)
		}
		if call.status == http.StatusForbidden {
			s.wantProblem(a, call.status, "database_rights")
		}
	}
}

// raw sends bytes and returns the status line of the answer.
func (s *server) raw(text string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), ioTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write([]byte(text)); err != nil {
		s.t.Logf("write: %v", err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		s.t.Fatalf("no answer: %v", err)
	}
	return strings.TrimSpace(line)
}
