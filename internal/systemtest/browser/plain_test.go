package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Without TLS and beyond loopback browsers send no Sec-Fetch-Site. A caller signs in and acts there as well.
func TestConsoleWithoutTLSInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	k := ledgertest.Key(t, "coupon.send/order-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	s.project()
	c := s.open(t, 1280, 900)
	secret := c.makeToken(api.Operator)
	c.site = &site{t: t, db: s.db, url: strings.Replace(s.url, "127.0.0.1", plainHost, 1)}
	c.signInBy(secret)
	c.visit("/task?" + keyOf(k))
	c.check("a console without TLS")
	c.do(chromedp.Click(chromedp.CSS(`button[value="cancel"]`)))
	c.shows("1 of 1 tasks can be changed")
	c.do(chromedp.SendKeys(chromedp.CSS(`input[name=reason]`), "ordered twice"),
		chromedp.Click(chromedp.CSS(`main form button.danger`)))
	c.shows("1 of 1 tasks were changed")
	c.check("an act without TLS")
}
