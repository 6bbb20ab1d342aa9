package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Each service on the page System has the state of its worst condition or check. A paused subscriber is no good state,
// and counts as behind.
func TestBoxesOfSystem(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-1"), `{}`)
	operator := ledgertest.As(t, s.db, "operator")
	err := subscribers.Seek(t.Context(), operator, "mails", feed.After(0), "", "")
	if err == nil {
		err = subscribers.Pause(t.Context(), operator, "mails", true, "bob", "the mailer is down")
	}
	if err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Viewer)
	p := b.get("/system")
	b.want(p, http.StatusOK, `<div class="node warning"><b>PostgreSQL</b>`, "clock: PostgreSQL is &lt;2 h&gt; ahead",
		`<div class="node critical"><b>Relay</b>`, `<div class="node ok"><b>Scheduler</b>`,
		`<div class="node note"><b>Stream</b>`,
		`<div class="node warning"><b>Subscribers</b>`, "mails is paused", "5 behind",
		`<span class="level warning">warning</span> clock`, `title="1 with a warning, of the checks on System"`)
	b.want(b.get("/"), http.StatusOK, `<a href="/system">1 check</a> on System has a warning: clock.`)
	if strings.Index(p.body, "<h2>Checks") > strings.Index(p.body, `class="flow`) {
		t.Errorf("the checks are not first:\n%s", p.content())
	}
}

// A check that fails is on the overview and in the menu of each page, also of one that makes no checks itself.
func TestFailedChecksAreOnTheOverview(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.isUnsafe.Store(true)
	b := s.as(api.Viewer)
	for begun := time.Now(); !strings.Contains(b.get("/").body, "fsync"); {
		if time.Since(begun) > time.Minute {
			t.Fatal("no check is made in the background")
		}
	}
	b.want(b.get("/"), http.StatusOK, `<span class="level critical">critical</span> The check fsync fails`,
		"fsync &lt;off&gt;.", "set fsync to on", "Show checks")
	b.want(b.get("/tasks"), http.StatusOK, `title="1 failed, of the checks on System"`)
	limited := s.as(api.Viewer, "coupon.*")
	if p := limited.get("/"); strings.Contains(p.body, "fsync") || strings.Contains(p.body, "of the checks") {
		t.Errorf("a caller that is limited to kinds reads checks:\n%s", p.body)
	}
}
