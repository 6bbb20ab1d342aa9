package browser_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A filter of tasks is kept by the browser, over an update of the page and on the page without a filter, until it is
// forgotten.
func TestFiltersAreKeptInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-1"), `{}`)
	s.project()
	c := s.open(t, 1280, 900)
	c.signInAs(api.Viewer)
	const kept = `[...document.querySelectorAll("#saved a")].map((a) => a.textContent).join("; ")`
	c.visit("/tasks")
	if isShown := read(c, chromedp.Evaluate[bool](`!document.querySelector("#save").hidden`)); isShown {
		t.Error("the page without a filter offers to keep it")
	}
	c.visit("/tasks?kind=coupon.send&state=available")
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")), chromedp.Click(chromedp.CSS("#save")))
	c.until(kept + ` === "kind: coupon.send, available"`)
	read(c, chromedp.Evaluate[bool](pointAway))
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-2"), `{}`)
	s.project()
	c.shows("order-2")
	c.until(kept + ` === "kind: coupon.send, available"`)
	c.visit("/tasks")
	c.do(chromedp.Click(chromedp.CSS("#saved a")))
	c.until(`location.search === "?kind=coupon.send&state=available" && document.readyState === "complete"`)
	c.do(chromedp.WaitVisible(chromedp.CSS("#live")), chromedp.Click(chromedp.CSS("#save")))
	c.until(kept + ` === ""`)
	c.check("the filters")
}
