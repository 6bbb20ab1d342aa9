package browser_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// All dead tasks of a filter are released by clicks, from the filter over the preview to the events.
func TestBulkInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	var keys []ledger.Key
	for i := range 30 {
		keys = append(keys, ledgertest.Key(t, fmt.Sprintf("coupon.send/order-%03d", i)))
	}
	other := ledgertest.Key(t, "coupon.send/other")
	for _, k := range append(keys[:30:30], other) {
		ledgertest.Append(t, owner, k, ledger.EventBuried)
	}
	s.project()
	c := s.open(t, 1280, 900)
	c.signInAs(api.Operator)
	c.visit("/tasks?state=dead&prefix=order-")
	c.do(chromedp.Click(chromedp.CSS(`form[action="/bulk"] button[value=release]`)))
	c.shows("30 tasks match now")
	for _, f := range c.axe() {
		t.Errorf("%s, %s: %s\n%s", f.Impact, f.ID, f.Help, f.Nodes)
	}
	c.picture("bulk-light")
	c.do(chromedp.SendKeys(chromedp.CSS(`input[name=reason]`), "it is up"),
		chromedp.Click(chromedp.CSS(`main button.main`)))
	c.shows("30 tasks were changed, 0 were not")
	for _, k := range keys {
		got, err := ledger.Load(t.Context(), s.db, k)
		if err != nil || got.Version != 3 || got.State != ledger.StateAvailable || got.Actor != "ada" {
			t.Errorf("got the task %v: %v", got, err)
		}
	}
	if got, err := ledger.Load(t.Context(), s.db, other); err != nil || got.Version != 2 {
		t.Errorf("got the other task %v: %v", got, err)
	}
	c.check("the acts")
}
