package console_test

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/console"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// serveLedgers serves the console over several ledgers.
func serveLedgers(t *testing.T, change func(*api.Config), of map[string]*pgxpool.Pool) *site {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	handlers := make(map[string]*console.Handler)
	var drains []func()
	for name, db := range of {
		c := api.Config{DB: db, Logger: log}
		change(&c)
		callers, err := api.New(c)
		if err != nil {
			t.Fatal(err)
		}
		drains = append(drains, callers.Drain)
		handlers[name], err = console.New(console.Config{DB: db, API: callers, Logger: log,
			Base: console.LedgerBase("/", name)})
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := console.NewLedgers("/", handlers)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(all)
	t.Cleanup(func() {
		for _, drain := range drains {
			drain()
		}
		server.Close()
	})
	return &site{t: t, url: server.URL}
}

// in returns the browser at the console of a ledger, with the same cookies.
func (b *browser) in(ledger string, db *pgxpool.Pool) *browser {
	return &browser{&site{t: b.t, url: b.url + "/ledgers/" + ledger, db: db}, b.client}
}

// signInNew signs in with a new token, and returns it.
func (b *browser) signInNew(role api.Role) string {
	b.t.Helper()
	_, secret, err := api.CreateToken(b.t.Context(), b.db, api.TokenOptions{Name: "ada", Role: role})
	if err != nil {
		b.t.Fatal(err)
	}
	for b.signIn(secret).status == http.StatusUnauthorized { // until the API reads its tokens again
	}
	return secret
}

var linked = regexp.MustCompile(`(?:href|src|action|data-base)="([^"]*)"`)

// Each ledger has callers of its own. A caller sees the ledgers that admit it, and in the console of one only addresses
// of this ledger, except for the way to the others.
func TestLedgersHaveTheirOwnCallers(t *testing.T) {
	t.Parallel()
	shop, mail := ledgertest.Pool(t, databaseRoles...), ledgertest.Pool(t, databaseRoles...)
	for n := range 3 {
		ledgertest.Enqueue(t, shop, ledgertest.Key(t, fmt.Sprint("coupon.send/order-", n)), `{}`)
		(&site{t: t, db: shop}).project()
	}
	s := serveLedgers(t, func(*api.Config) {}, map[string]*pgxpool.Pool{"shop": shop, "mail": mail})
	b := s.anyone()
	b.want(b.get("/"), http.StatusOK, "signed in to no ledger")
	if p := b.get("/"); strings.Contains(p.body, "shop") || strings.Contains(p.body, "mail") {
		t.Errorf("a visitor sees the names of ledgers:\n%s", p.content())
	}
	inShop, inMail := b.in("shop", shop), b.in("mail", mail)
	secret := inShop.signInNew(api.Admin)
	p := b.get("/")
	b.want(p, http.StatusOK, `href="/ledgers/shop/"`, `data-label="backlog">3<`, `data-label="critical">2<`,
		"<title>(", "icon-critical.svg")
	inShop.want(inShop.get("/"), http.StatusOK, "<title>(", "icon-critical.svg")
	if strings.Contains(p.body, "mail") {
		t.Errorf("a caller of shop sees the other ledger:\n%s", p.content())
	}
	inMail.want(inMail.get("/"), http.StatusUnauthorized, "Sign in")
	r := servicetest.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, inMail.url+"/tasks", nil))(t)
	r.Header.Set("Authorization", "Bearer "+secret)
	answer := servicetest.Try(http.DefaultClient.Do(r))(t)
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token of shop has the status %d in mail", answer.StatusCode)
	}

	ofShop := token(t, inShop.get("/enqueue"))
	inMail.signInNew(api.Admin)
	form := url.Values{"csrf": {ofShop}, "kind": {"mail.send"}, "biz_id": {"1"}, "args": {"{}"}}
	inMail.want(inMail.post("/enqueue", form), http.StatusForbidden, "not one of this session")
	b.want(b.get("/"), http.StatusOK, `href="/ledgers/shop/"`, `href="/ledgers/mail/"`)
	for _, path := range []string{
		"", "/", "/tasks", "/task?kind=coupon.send&biz_id=order-1", "/failures", "/kinds", "/kind?name=coupon.send",
		"/limits", "/workers", "/schedules", "/subscribers", "/events", "/system", "/enqueue", "/find?q=order",
		"/sign-in", "/none",
	} {
		p := inShop.get(path)
		if path == "/sign-in" { // which forgets the session
			inShop.signIn(secret)
		}
		for _, found := range linked.FindAllStringSubmatch(p.body, -1) {
			to := servicetest.Try(p.at.Parse(html.UnescapeString(found[1])))(t)
			if to.Host != p.at.Host || !strings.HasPrefix(to.Path, "/ledgers/shop/") && to.Path != "/" &&
				to.Path != "/ledgers/mail/" {
				t.Errorf("%s of shop leads to %s", path, to)
			}
		}
		inShop.want(p, p.status, "All ledgers", `href="/ledgers/mail/"`, `href="/"`, " · shop · taskledger</title>")
	}
	inShop.want(inShop.get("/assets/console.css"), http.StatusOK)
	b.want(b.get("/assets/console.css"), http.StatusOK)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r = servicetest.Try(http.NewRequestWithContext(ctx, http.MethodGet, inShop.url+"/stream", nil))(t)
	answer = servicetest.Try(b.client.Do(r))(t)
	kind := answer.Header.Get("Content-Type")
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Errorf("the stream of shop: %d %s", answer.StatusCode, kind)
	}
	out := url.Values{"csrf": {token(t, inShop.get("/tasks"))}}
	inShop.want(inShop.post("/sign-out", out), http.StatusOK, "Sign in")
	inShop.want(inShop.get("/tasks"), http.StatusUnauthorized)
	inMail.want(inMail.get("/tasks"), http.StatusOK)
}

// A ledger whose database has stopped, and one whose database hangs, are shown as such to a browser with a session
// there. They delay the others for two seconds at most, and no other browser sees their names.
func TestLedgersThatAreUnavailable(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	stopped := servicetest.Try(pgxpool.New(t.Context(), server.URL(ledgertest.Database)))(t)
	t.Cleanup(stopped.Close)
	shop, other := ledgertest.Pool(t, databaseRoles...), ledgertest.Pool(t, databaseRoles...)
	freezer, frozen := servicetest.NewFreezer(t, other)
	all := map[string]*pgxpool.Pool{"shop": shop, "frozen": frozen, "stopped": stopped}
	s := serveLedgers(t, func(*api.Config) {}, all)
	b := s.anyone()
	secret := ""
	for name, db := range all {
		if got := b.in(name, db).signInNew(api.Viewer); name == "shop" {
			secret = got
		}
	}
	b.want(b.get("/"), http.StatusOK, `data-key="stopped"`, `data-key="frozen"`)
	freezer.Freeze()
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := func(b *browser) map[string]string {
		found := make(map[string]string)
		for _, row := range strings.Split(b.get("/").content(), "<tr data-key=\"")[1:] {
			name, text, _ := strings.Cut(row, `"`)
			found[name] = text
		}
		return found
	}
	got := rows(b)
	if !strings.Contains(got["shop"], `data-label="backlog"`) ||
		!strings.Contains(got["frozen"], "It did not answer within 2 s.") ||
		!strings.Contains(got["stopped"], "is PostgreSQL running?") || strings.Contains(got["stopped"], "backlog") {
		t.Errorf("the ledgers are %q", got)
	}
	alone := s.anyone()
	alone.in("shop", shop).signIn(secret)
	if got := rows(alone); len(got) != 1 || got["shop"] == "" {
		t.Errorf("a browser with a session in shop sees %q", got)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	freezer.Thaw()
	for deadline := time.Now().Add(time.Minute); ; {
		got := rows(b)
		if strings.Contains(got["stopped"], "backlog") && strings.Contains(got["frozen"], "backlog") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the ledgers do not come back: %q", got)
		}
	}
}

// Without authentication all ledgers are shown, even one whose database is unavailable.
func TestLedgersWithoutAuthentication(t *testing.T) {
	t.Parallel()
	away := servicetest.Try(pgxpool.New(t.Context(), "postgres://app@127.0.0.1:1/app?sslmode=disable"))(t)
	t.Cleanup(away.Close)
	s := serveLedgers(t, func(c *api.Config) { c.Anonymous = true },
		map[string]*pgxpool.Pool{"shop": ledgertest.Pool(t, databaseRoles...), "away": away})
	b := s.anyone()
	b.want(b.get("/"), http.StatusOK, `data-key="shop"`, `data-key="away"`, "is PostgreSQL running?")
	b.want(b.get("/ledgers/away/"), http.StatusServiceUnavailable, `href="/ledgers/shop/"`)
}

// A name that could leave its place in an address, a cookie or a page is refused, in the configuration and from
// browsers.
func TestNamesOfLedgers(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, databaseRoles...)
	callers := servicetest.Try(api.New(api.Config{DB: db}))(t)
	t.Cleanup(callers.Drain)
	hostile := []string{"", ".", "..", "../shop", "a/b", "a;b", "a b", `"><script>alert(1)</script>`, "a%2fb", "größe",
		"a\nb", "-", strings.Repeat("a", 65)}
	for _, name := range hostile {
		c := console.Config{DB: db, API: callers}
		if base := console.LedgerBase("/", name); !strings.Contains(base, "//") {
			c.Base = base
		}
		h := servicetest.Try(console.New(c))(t)
		if _, err := console.NewLedgers("/", map[string]*console.Handler{name: h}); err == nil {
			t.Errorf("the name %q is not refused", name)
		}
	}
	if _, err := console.NewLedgers("/", nil); err == nil {
		t.Error("no ledger is not refused")
	}
	s := serveLedgers(t, func(*api.Config) {}, map[string]*pgxpool.Pool{"shop": db})
	b := s.anyone()
	for _, name := range append(hostile, "//attacker.example") {
		p := b.get("/open?ledger=" + url.QueryEscape(name))
		if p.status != http.StatusBadRequest || strings.Contains(p.body, "<script>") {
			t.Errorf("%q: status %d: %s", name, p.status, p.body)
		}
		p = b.get("/ledgers/" + url.PathEscape(name) + "/")
		if p.status != http.StatusNotFound || strings.Contains(p.body, "<script>") {
			t.Errorf("%q in the path: status %d: %s", name, p.status, p.body)
		}
	}
	b.want(b.get("/ledgers/shop%2f..%2fmail/tasks"), http.StatusNotFound)
	b.want(b.get("/open?ledger=shop"), http.StatusOK, `action="/ledgers/shop/sign-in"`)
	b.want(b.post("/", url.Values{}), http.StatusMethodNotAllowed)
}

// With TLS, browsers take the token of a ledger from no other host, and send it to the page of ledgers.
func TestTokenOfALedgerWithTLS(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, databaseRoles...)
	callers := servicetest.Try(api.New(api.Config{DB: db}))(t)
	t.Cleanup(callers.Drain)
	h := servicetest.Try(console.New(console.Config{DB: db, API: callers, IsBehindTLS: true,
		Base: "/ledgers/shop/"}))(t)
	all := servicetest.Try(console.NewLedgers("/", map[string]*console.Handler{"shop": h}))(t)
	r := httptest.NewRequest(http.MethodGet, "/ledgers/shop/tasks", nil)
	r.AddCookie(&http.Cookie{Name: "__Host-taskledger_token.shop", Value: "tlk_old_x"})
	w := httptest.NewRecorder()
	all.ServeHTTP(w, r)
	if got := w.Header().Values("Set-Cookie"); !slices.ContainsFunc(got, func(c string) bool {
		return strings.HasPrefix(c, "__Host-taskledger_token.shop=; Path=/; ") && strings.Contains(c, "; Secure")
	}) {
		t.Errorf("a refused token is not forgotten: %q", got)
	}
}
