package browser_test

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/taskledger/taskledger/internal/api"
)

// hide has a page believe that it is in the background, since tabs of a browser without windows are all visible.
const hide = `Object.defineProperty(document, "hidden", {value: true, configurable: true});
	document.dispatchEvent(new Event("visibilitychange")); document.hidden`

// Browsers open at most six connections to a server without HTTP/2. Pages in the background hold none, so that any
// number of tabs can be open.
func TestManyTabsInABrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	s := serve(t)
	c := s.open(t, 1280, 900)
	c.signInAs(api.Operator)
	for i := range 8 {
		tab, cancel := chromedp.NewContext(c.ctx)
		t.Cleanup(cancel)
		if err := chromedp.Do(tab); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(tab, 20*time.Second)
		defer cancel()
		err := chromedp.Do(ctx, chromedp.Navigate(s.url+"/tasks"), chromedp.WaitVisible(chromedp.CSS("#live")))
		if err != nil {
			t.Fatalf("tab %d is not shown: %v", i, err)
		}
		if isHidden, err := chromedp.Run(ctx, chromedp.Evaluate[bool](hide)); err != nil || !isHidden {
			t.Fatal(isHidden, err)
		}
	}
}
