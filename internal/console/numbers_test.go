package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// fail makes six attempts of a kind fail. Its tasks are retried, or die.
func (s *site) fail(kind ledger.Kind, isEnd bool) {
	s.t.Helper()
	for n := range 6 {
		k := ledgertest.Key(s.t, fmt.Sprintf("%s/%d", kind, n))
		ledgertest.Enqueue(s.t, s.db, k, `{}`)
		events := []ledger.AppendRequest{{Type: ledger.EventFailed, Data: []byte(`{"error":{"message":"refused"}}`),
			In: time.Hour}, {Type: ledger.EventBuried, Data: []byte(`{"reason":"it is wrong"}`)}}
		if !isEnd {
			events = events[:1]
		}
		s.appendAll(k, events...)
	}
}

// The menu and the title of each page have the numbers of cards on Overview: of conditions, of failing kinds, and of
// failed checks, critical ones and warnings apart.
func TestNumbersOfTroubles(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.isUnsafe.Store(true)
	s.fail("webhook.deliver", true)
	s.fail("report.make", false)
	s.project()
	b := s.as(api.Operator)
	b.get("/system") // makes the checks
	overview := b.get("/")
	b.want(overview, http.StatusOK, "webhook.deliver is failing", "report.make is failing", "The check fsync fails")
	if strings.Index(overview.body, "webhook.deliver is failing") > strings.Index(overview.body, "The check fsync") {
		t.Error("a check is above a failing kind")
	}
	cards := func(p page) [2]int {
		return [2]int{strings.Count(p.body, `class="condition critical"`),
			strings.Count(p.body, `class="condition warning"`)}
	}
	for path, status := range map[string]int{"/": http.StatusOK, "/tasks": http.StatusOK, "/system": http.StatusOK,
		"/kinds": http.StatusOK, "/absent": http.StatusNotFound, "/tasks?since=soon": http.StatusBadRequest} {
		want, have := cards(b.get("/")), b.get(path)
		for want != cards(b.get("/")) { // a condition began
			want, have = cards(b.get("/")), b.get(path)
		}
		if want[0] < 2 || want[1] < 1 {
			t.Fatalf("%d critical cards and %d warnings:\n%s", want[0], want[1], overview.content())
		}
		b.want(have, status, fmt.Sprintf(`title="%d critical on Overview"`, want[0]),
			fmt.Sprintf(`title="%d with a warning on Overview"`, want[1]),
			fmt.Sprintf("<title>(%d) ", want[0]+want[1]), "icon-critical.svg")
	}
}

// The numbers of troubles follow the ledger without a reader of Overview. A caller that is limited to kinds has those
// of its kinds.
func TestNumbersWithoutTheOverview(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.fail("report.make", false)
	s.fail("webhook.deliver", false)
	s.project()
	b := s.as(api.Viewer, "report.*", "invoice.*")
	b.want(b.get("/tasks"), http.StatusOK, `title="1 with a warning on Overview"`, "<title>(1) ",
		"icon-warning.svg")
	s.fail("invoice.print", false)
	s.project()
	for begun := time.Now(); !strings.Contains(b.get("/tasks").body, "<title>(2) "); time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("the numbers are not read again:\n%s", b.get("/tasks").body)
		}
	}
}
