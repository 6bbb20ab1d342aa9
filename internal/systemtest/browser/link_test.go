package browser_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A link on a page of another site leads a caller that has signed in to the page, and a form of a page that was open
// before still works.
func TestLinkOfAnotherSiteInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	k := ledgertest.Key(t, "coupon.send/order-1")
	ledgertest.Enqueue(t, s.db, k, `{}`)
	s.project()
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<p id="content"><a id="link" href="%s/task?%s">an alarm</a></p>`, s.url, keyOf(k))
	}))
	t.Cleanup(chat.Close)
	c := s.open(t, 1280, 900)
	c.signInAs(api.Operator)
	before := read(c, chromedp.Evaluate[string](`document.querySelector("input[name=csrf]").value`))
	c.do(chromedp.Navigate(strings.Replace(chat.URL, "127.0.0.1", "localhost", 1)),
		chromedp.Click(chromedp.CSS("#link")))
	c.shows("Sign out")
	c.shows("order-1")
	after := read(c, chromedp.Evaluate[string](`document.querySelector("input[name=csrf]").value`))
	if before != after {
		t.Error("the forms of open pages have become invalid")
	}

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/failures", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site") // loaded again, by a browser that still counts it so
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(body), "name=\"token\"") {
		t.Errorf("no token can be entered: %v\n%s", err, body)
	}
}

// brokenPart is a part of a key that is on two lines although it fits on one.
const brokenPart = `(() => {
	for (const bdi of document.querySelectorAll("td a bdi")) for (const node of bdi.childNodes) {
		const range = document.createRange();
		for (const part of (node.data ?? "").matchAll(/[^-.:@_]+[-.:@_]?/g)) {
			range.setStart(node, part.index);
			range.setEnd(node, part.index + part[0].length);
			if (new Set([...range.getClientRects()].map((r) => r.top)).size > 1) return part[0];
		}
	}
	return "";
})()`

// On a phone, lines of keys end between their parts.
func TestKeysOnAPhoneInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "warehouse.inventory.recount/nightly-report@2026-11-25"), `{}`)
	s.project()
	c := s.open(t, 360, 780)
	c.signInAs(api.Viewer)
	for _, path := range []string{"/tasks", "/events"} {
		c.visit(path)
		c.shows("nightly")
		if part := read(c, chromedp.Evaluate[string](brokenPart)); part != "" {
			t.Errorf("%s: %q is on two lines", path, part)
		}
	}
	c.check("keys")
}
