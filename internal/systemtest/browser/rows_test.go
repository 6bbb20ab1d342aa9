package browser_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// until waits until an expression is true.
func (c *chromium) until(expression string) {
	c.t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if ok, err := chromedp.Run(c.ctx, chromedp.Evaluate[bool](expression)); err == nil && ok {
			return
		}
	}
	body, err := chromedp.Run(c.ctx, chromedp.Text(chromedp.CSS("body")))
	c.t.Fatalf("%s is not true: %v\n%s", expression, err, body)
}

// pointAway moves the pointer away from all rows, which hold still under it.
const pointAway = `document.body.dispatchEvent(new PointerEvent("pointerover", {pointerType: "mouse", bubbles: true}))`

// An update leaves a form open with its text, a selected row selected and a selected text selected.
func TestRowsHoldStillInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-1"), `{}`)
	s.project()
	c := s.open(t, 1280, 900)
	c.signInAs(api.Admin)

	c.visit("/kinds")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")), chromedp.Click(chromedp.CSS("#content td details summary")),
		chromedp.SendKeys(chromedp.CSS("#content td details input[name=reason]"), "the mailer is down"))
	read(c, chromedp.Evaluate[bool](pointAway))
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "added.later/order-2"), `{}`)
	s.project()
	c.shows("added.later")
	const form = `document.querySelector("#content td details[open] input[name=reason]")?.value ?? "closed"`
	if text := read(c, chromedp.Evaluate[string](form)); text != "the mailer is down" {
		t.Errorf("an update left the form %q", text)
	}

	// On the overview the form stays under its own sentence when another one comes before it.
	o := operator.New(ledgertest.As(t, s.db, "operator"))
	pause := func(k ledger.Kind, age string) {
		t.Helper()
		if _, err := o.PauseKind(t.Context(), k, operator.Audit{Actor: "ada", Reason: "it is down"}); err != nil {
			t.Fatal(err)
		}
		ledgertest.ExecAsOwner(t, s.db,
			"update taskledger.pause set since = now() - $2::text::interval where kind = $1", string(k), age)
	}
	pause("coupon.send", "1 hour")
	c.visit("/")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")), chromedp.Click(chromedp.CSS(".condition .acts summary")),
		chromedp.SendKeys(chromedp.CSS(".condition .acts input[name=reason]"), "it is up"))
	pause("added.later", "2 hours")
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "added.later/order-5"), `{}`)
	s.project()
	c.shows("added.later is paused")
	const kept = `[...document.querySelectorAll(".condition")].map((e) =>
		e.querySelector("h2").textContent.split(" ")[1] + ":" +
		(e.querySelector("details[open] input[name=reason]")?.value ?? "")).join(" ")`
	if text := read(c, chromedp.Evaluate[string](kept)); !strings.Contains(text, "added.later: ") ||
		!strings.Contains(text, "coupon.send:it is up") {
		t.Errorf("an update left the sentences %q", text)
	}

	c.visit("/tasks")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")))
	read(c, chromedp.Evaluate[bool](pointAway))
	c.until(`(() => {
		const link = [...document.querySelectorAll("td a")].find((a) => a.textContent.includes("order-1"));
		getSelection().selectAllChildren(link);
		return getSelection().toString().includes("order-1");
	})()`)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-3"), `{}`)
	s.project()
	c.shows("order-3")
	if text := read(c, chromedp.Evaluate[string]("getSelection().toString()")); !strings.Contains(text, "order-1") {
		t.Errorf("an update left the selection %q", text)
	}
	c.do(chromedp.Click(chromedp.CSS(`tbody input[type=checkbox]`)))
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-4"), `{}`)
	s.project()
	c.until(`document.querySelector("#held").textContent.startsWith("1 new")`)
	c.do(chromedp.Click(chromedp.CSS("#held")))
	c.shows("order-4")
	if n := read(c, chromedp.Evaluate[int](`document.querySelectorAll("tbody input:checked").length`)); n != 1 {
		t.Errorf("an update left %d selected rows", n)
	}
	c.check("rows")
}

// A task is found, selected and cancelled by the keyboard alone.
func TestKeyboardInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	for _, id := range []string{"order-1", "order-2", "order-3"} {
		ledgertest.Append(t, ledgertest.As(t, s.db, ledgertest.Owner), ledgertest.Key(t, "coupon.send/"+id),
			ledger.EventBuried)
	}
	s.project()
	c := s.open(t, 1280, 900)
	c.signInAs(api.Operator)
	c.visit("/events")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")), chromedp.KeyEvent("k", chromedp.KeyModifiers(2))) // Ctrl
	c.until(`document.querySelector("#palette").open`)
	c.do(chromedp.KeyEvent("coupon.send"))
	c.until(`document.querySelector("#hits [aria-selected=true]")?.textContent.includes("coupon.send")`)
	c.do(chromedp.KeyEvent(kb.Enter))
	c.until(`location.pathname === "/kind" && document.readyState === "complete"`)
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")), chromedp.KeyEvent("k", chromedp.KeyModifiers(2)))
	c.until(`document.querySelector("#palette").open`)
	c.do(chromedp.KeyEvent("Tasks"))
	c.until(`document.querySelector("#hits [aria-selected=true]")?.textContent.includes("Tasks")`)
	c.do(chromedp.KeyEvent(kb.Enter))
	c.until(`location.pathname === "/tasks" && document.readyState === "complete"`)
	c.visit("/tasks?state=dead")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"),
		chromedp.KeyEvent("x"))
	c.until(`document.querySelectorAll("tbody input:checked").length === 1`)
	c.do(chromedp.KeyEvent("r"))
	c.shows("1 of 1 tasks can be changed")
	c.do(chromedp.Focus(chromedp.CSS("input[name=reason]")), chromedp.KeyEvent("it is up"+kb.Enter))
	c.shows("1 of 1 tasks were changed")
	if got, err := ledger.Load(t.Context(), s.db, ledgertest.Key(t, "coupon.send/order-2")); err != nil ||
		got.State != ledger.StateAvailable {
		t.Errorf("got the task %v, %v", got, err)
	}
	c.check("the keyboard")
}

// The theme that a person has chosen is that of all pages.
func TestThemeInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	c := s.open(t, 1280, 900)
	c.signInAs(api.Viewer)
	c.do(chromedp.Click(chromedp.CSS("#theme")), chromedp.Click(chromedp.CSS("#theme")))
	c.visit("/tasks")
	if theme := read(c, chromedp.Evaluate[string]("document.documentElement.dataset.theme")); theme != "dark" {
		t.Errorf("the theme is %q", theme)
	}
	c.check("the theme")
}

// On a phone, the theme and the sign-out are behind More, which is marked on a page that is behind it.
func TestMoreOnAPhoneInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	c := s.open(t, 360, 780)
	c.do(chromedp.EmulateViewport(360, 780))
	c.signInAs(api.Viewer)
	const colour = `getComputedStyle(document.querySelector("nav > .phone")).color`
	const isShown = `document.querySelector("#theme").checkVisibility()`
	plain := read(c, chromedp.Evaluate[string](colour))
	c.visit("/kinds")
	if read(c, chromedp.Evaluate[string](colour)) == plain {
		t.Error("More is not marked on the page Kinds")
	}
	if read(c, chromedp.Evaluate[bool](isShown)) {
		t.Error("the theme is shown although More is closed")
	}
	c.do(chromedp.Click(chromedp.CSS("nav > .phone")), chromedp.WaitVisible(chromedp.CSS("#theme")))
	c.picture("more-phone")
	c.do(chromedp.Click(chromedp.CSS("#theme")), chromedp.Click(chromedp.CSS("#theme")))
	if theme := read(c, chromedp.Evaluate[string]("document.documentElement.dataset.theme")); theme != "dark" {
		t.Errorf("the theme is %q", theme)
	}
	c.do(chromedp.Click(chromedp.CSS(`.others [href="#main"]`)))
	c.until("!" + isShown)
	c.check("more")
}
