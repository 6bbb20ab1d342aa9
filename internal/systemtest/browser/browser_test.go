// Package browser tests the console in a browser. It is apart from the console because of the modules that it needs.
package browser_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

var screenshots = flag.String("screenshots", "", "directory for pictures of all pages (default: none)")

// axeVariable is the environment variable with the path of axe.min.js, which checks the accessibility of pages.
const axeVariable = "TASKLEDGER_AXE"

// plainHost is a host whose pages browsers do not trust without TLS, other than those of a loopback address.
const plainHost = "console.example"

// chromium is a browser that shows a site. It records what no page may do: errors in its console, exceptions, and
// requests to other servers.
type chromium struct {
	*site
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// findChromium returns the program, or skips the test.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED without Chromium (Debian: apt install chromium)")
	return ""
}

// open starts a browser of a width and height in pixels.
func (s *site) open(t *testing.T, width, height int) *chromium {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(findChromium(t)),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(width, height),
		chromedp.Flag("host-resolver-rules", "MAP "+plainHost+" 127.0.0.1"),
		chromedp.WSURLReadTimeout(2*time.Minute))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	c := &chromium{site: s, ctx: ctx}
	_, err1 := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, err2 := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	if err := errors.Join(err1, err2, chromedp.Listen(ctx, c.watch)); err != nil {
		t.Fatal(err)
	}
	return c
}

// watch records a problem.
func (c *chromium) watch(event any) {
	problem := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, c.url+"/") {
			problem = "a request to " + e.Request.URL
		}
	case *runtime.EventExceptionThrown:
		problem = "an exception: " + e.ExceptionDetails.Text
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			problem = "in the console: " + e.Entry.Text + " " + e.Entry.URL
		}
	case *runtime.EventConsoleAPICalled:
		problem = "in the console: " + string(e.Type)
	}
	if problem != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.problems = append(c.problems, problem)
	}
}

// check fails the test if there were problems, and forgets them.
func (c *chromium) check(about string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.problems {
		c.t.Errorf("%s: %s", about, p)
	}
	c.problems = nil
}

// do executes actions, at most for a minute.
func (c *chromium) do(actions ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		body, _ := chromedp.Run(c.ctx, chromedp.Text(chromedp.CSS("body")))
		c.t.Fatalf("%v on the page\n%s", err, body)
	}
}

// read returns the value of an action.
func read[T any](c *chromium, action chromedp.Action[T]) T {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		c.t.Fatal(err)
	}
	return value
}

// visit opens a page below the base.
func (c *chromium) visit(path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.url+path), chromedp.WaitVisible(chromedp.CSS("#content")))
}

// shows waits until the page has a text, also if another page is under way.
func (c *chromium) shows(text string) {
	c.t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(20 * time.Millisecond) {
		body, err := chromedp.Run(c.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		if err == nil && strings.Contains(body, text) {
			return
		}
	}
	body, err := chromedp.Run(c.ctx, chromedp.Text(chromedp.CSS("body")))
	c.t.Fatalf("the page has not %q: %v\n%s", text, err, body)
}

// signInAs signs in by the form.
func (c *chromium) signInAs(role api.Role) {
	c.t.Helper()
	c.signInBy(c.makeToken(role))
}

// makeToken returns a token that the API knows.
func (c *chromium) makeToken(role api.Role) string {
	c.t.Helper()
	_, secret, err := api.CreateToken(c.t.Context(), c.db, api.TokenOptions{Name: "ada", Role: role})
	if err != nil {
		c.t.Fatal(err)
	}
	for !c.admits(secret) { // until the API reads its tokens again
	}
	return secret
}

func (c *chromium) signInBy(secret string) {
	c.t.Helper()
	c.visit("/sign-in")
	c.do(chromedp.SendKeys(chromedp.CSS(`input[name=token]`), secret),
		chromedp.Click(chromedp.CSS(`button.main`)))
	c.do(chromedp.WaitReady(chromedp.CSS(".who form"))) // on a phone it is behind More
}

// finding is a violation of a rule of accessibility.
type finding struct{ ID, Impact, Help, Nodes string }

// axe returns the findings on the page, the serious and critical ones. Without the script it returns none.
func (c *chromium) axe() []finding {
	c.t.Helper()
	path := os.Getenv(axeVariable)
	if path == "" {
		return nil
	}
	script, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	read(c, chromedp.Evaluate[chromedp.Void](string(script)))
	return read(c, chromedp.Evaluate[[]finding](`axe.run().then((r) => r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => ({ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.map((n) => n.html).join("\n")})))`,
		chromedp.EvalAwaitPromise))
}

// picture writes a picture of the page, if asked for.
func (c *chromium) picture(name string) {
	c.t.Helper()
	if *screenshots == "" {
		return
	}
	image := read(c, chromedp.CaptureScreenshot())
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), image, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// shop fills the ledger with the tasks of a shop, and hostile ones.
func (s *site) shop(t *testing.T) {
	t.Helper()
	s.sell(t)
	k := ledgertest.Key(t, "coupon.send/<script>alert(1)</script>")
	args := []byte(`{"note": "</script><img src=x onerror=alert(1)>"}`)
	if _, err := ledger.Enqueue(t.Context(), s.db, k, args, &ledger.EnqueueOptions{Actor: "shop"}); err != nil {
		t.Fatal(err)
	}
	s.project()
}

// sell fills the ledger with tasks of a shop in all states. Earlier events are inserted before those of its last day.
func (s *site) sell(t *testing.T, earlier ...string) {
	t.Helper()
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	_, err := periodic.Apply(t.Context(), owner, []periodic.Schedule{
		{Name: "nightly-report", Kind: "report.make", Cron: "30 2 * * *", Zone: "Europe/Berlin"},
		{Name: "crm-sync", Kind: "crm.sync", Every: 15 * time.Minute},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(k ledger.Key, args string) {
		options := &ledger.EnqueueOptions{Actor: "shop"}
		if _, err := ledger.Enqueue(t.Context(), s.db, k, []byte(args), options); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		k := ledgertest.Key(t, fmt.Sprintf("coupon.send/order-%d", 1000+i))
		enqueue(k, fmt.Sprintf(`{"customer": "c-%d", "percent": 10, "api_key": "not shown"}`, i))
	}
	for i := range 5 {
		k := ledgertest.Key(t, fmt.Sprintf("invoice.print/2026-%04d", i))
		enqueue(k, `{"order": "order-1004", "copies": 2}`)
		r := ledgertest.Request(k, 1, ledger.EventBuried)
		r.Actor, r.Data = "ada", []byte(`{"reason": "set aside until the printer of the warehouse is repaired"}`)
		if _, err := ledger.Append(t.Context(), owner, r); err != nil {
			t.Fatal(err)
		}
	}
	_, err = ledger.Enqueue(t.Context(), s.db, ledgertest.Key(t, "report.make/2026-11"), nil,
		&ledger.EnqueueOptions{RunIn: time.Hour, Actor: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		k := ledgertest.Key(t, fmt.Sprintf("coupon.send/order-%d", 990+i))
		enqueue(k, `{}`)
		for version, event := range []ledger.EventType{ledger.EventStarted, ledger.EventSucceeded} {
			r := ledgertest.Request(k, ledger.Version(version+1), event)
			r.Actor = "shop-1-5102"
			if _, err := ledger.Append(t.Context(), owner, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, sql := range append(earlier, daySQL) {
		if _, err := owner.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := owner.Exec(t.Context(), "select from taskledger.read_feed('mails', 100)"); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Run(t.Context(), ledgertest.As(t, s.db, "archiver"), nil); err != nil {
		t.Fatal(err)
	}
	s.project()
}

// pagesOf are the paths of all pages, with the names of their pictures.
var pagesOf = []struct{ name, path string }{
	{"overview", "/"}, {"tasks", "/tasks"}, {"task", "/task?kind=webhook.deliver.partner&biz_id=evt_12099"},
	{"failures", "/failures"},
	{"kinds", "/kinds"}, {"kind", "/kind?name=webhook.deliver.partner"}, {"limits", "/limits"}, {"workers", "/workers"},
	{"schedules", "/schedules"}, {"subscribers", "/subscribers"}, {"events", "/events"},
	{"system", "/system"}, {"enqueue", "/enqueue?kind=invoice.print"},
}

// hiddenLink is the text of a link to a page that is not in the window, and narrowLink that of one in a table whose
// words break because its column is narrow.
const (
	hiddenLink = `[...document.querySelectorAll("nav a")].map((a) => [a.textContent, a.getBoundingClientRect()])
		.filter(([, r]) => r.left < 0 || r.right > innerWidth).map(([text]) => text)[0] ?? ""`
	narrowLink = `[...document.querySelectorAll("td a")].filter((a) => a.textContent.length > 15)
		.filter((a) => a.getBoundingClientRect().width < 100).map((a) => a.textContent)[0] ?? ""`
)

// Each page is shown by a browser in light and dark, wide and narrow, with links that can be read, without an error in
// its console, without a request to another server, without a scroll bar for the whole page, and without a serious
// finding of axe.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	if os.Getenv(axeVariable) == "" {
		t.Logf("without %s accessibility is not checked", axeVariable)
	}
	s := serve(t)
	s.shop(t)
	for _, form := range []struct {
		name          string
		width, height int
		scheme        string
	}{
		{name: "light", width: 1280, height: 900, scheme: "light"},
		{name: "dark", width: 1280, height: 900, scheme: "dark"},
		{name: "phone", width: 360, height: 780, scheme: "light"},
		{name: "phone-dark", width: 360, height: 780, scheme: "dark"},
	} {
		t.Run(form.name, func(t *testing.T) {
			here := *s
			here.t = t
			c := here.open(t, form.width, form.height)
			c.do(chromedp.EmulateViewport(int64(form.width), int64(form.height)))
			_, err := chromedp.Call(c.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: form.scheme}}})
			if err != nil {
				t.Fatal(err)
			}
			c.signInAs(api.Admin)
			for _, p := range pagesOf {
				c.visit(p.path)
				if p.name == "task" {
					c.do(chromedp.Click(chromedp.CSS("#seal summary")))
					c.shows("taskledger event v1")
				}
				width := read(c, chromedp.Evaluate[int]("document.documentElement.scrollWidth"))
				if width > form.width {
					t.Errorf("%s is %d pixels wide, the window has %d", p.path, width, form.width)
				}
				if text := read(c, chromedp.Evaluate[string](hiddenLink)); text != "" {
					t.Errorf("%s: the link %q is outside of the window", p.path, text)
				}
				if text := read(c, chromedp.Evaluate[string](narrowLink)); text != "" {
					t.Errorf("%s: the link %q has less than a hundred pixels", p.path, text)
				}
				for _, f := range c.axe() {
					t.Errorf("%s: %s, %s: %s\n%s", p.path, f.Impact, f.ID, f.Help, f.Nodes)
				}
				c.check(p.path)
				c.picture(p.name + "-" + form.name)
			}
		})
	}
}

// A task is cancelled by clicks, from the list over the preview to the event, and the list shows a task that is
// enqueued while it is open.
func TestActInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	s.shop(t)
	c := s.open(t, 1280, 900)
	c.signInAs(api.Operator)
	c.visit("/tasks?prefix=order-1003")
	c.do(chromedp.Click(chromedp.CSS(`tbody input[type=checkbox]`)),
		chromedp.Click(chromedp.CSS(`button[value=cancel]`)))
	c.shows("1 of 1 tasks can be changed")
	c.do(chromedp.SendKeys(chromedp.CSS(`input[name=reason]`), "ordered twice"),
		chromedp.Click(chromedp.CSS(`main form button.danger`)))
	c.shows("1 of 1 tasks were changed")
	got, err := ledger.Load(t.Context(), s.db, ledgertest.Key(t, "coupon.send/order-1003"))
	if err != nil || got.State != ledger.StateCancelled || got.Actor != "ada" {
		t.Errorf("got the task %v, %v", got, err)
	}
	c.visit("/tasks")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")))
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/while-open"), `{}`)
	s.project()
	c.shows("while-open")
	c.check("the acts")
}
