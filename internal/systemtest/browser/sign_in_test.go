package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/taskledger/taskledger/internal/api"
)

// A link signs in once, by a click. Its code leaves the address bar at once, and is in no request but the form's body.
func TestLinkSignsInOnceInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	_, code, err := api.CreateLink(t.Context(), s.db, api.TokenOptions{Name: "ada", Role: api.Operator})
	if err != nil {
		t.Fatal(err)
	}
	c := s.open(t, 1280, 900)
	c.visit("/sign-in?next=tasks#" + code)
	c.shows("This link signs in once.")
	if address := read(c, chromedp.Evaluate[string]("location.href")); strings.Contains(address, "tll_") {
		t.Errorf("the address is %s", address)
	}
	c.picture("sign-in-link")
	c.do(chromedp.Click(chromedp.CSS("button.main")))
	c.shows("Sign out")
	if path := read(c, chromedp.Evaluate[string]("location.pathname + location.hash")); path != "/tasks" {
		t.Errorf("the link leads to %s", path)
	}
	if cookie := read(c, chromedp.Evaluate[string]("document.cookie")); cookie != "" {
		t.Errorf("a script reads the cookies %q", cookie)
	}
	c.check("the link")
	other := s.open(t, 1280, 900)
	other.visit("/sign-in#" + code)
	other.shows("This link signs in once.")
	other.do(chromedp.Click(chromedp.CSS("button.main")))
	other.shows("The link has expired or was used.")
}
