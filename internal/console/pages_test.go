package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
)

// The overview names each paused schedule that the caller may see, with the actor and the reason.
func TestPausedScheduleOnTheOverview(t *testing.T) {
	t.Parallel()
	s := serve(t)
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	all := []periodic.Schedule{
		{Name: "nightly", Kind: "report.make", Every: time.Hour},
		{Name: "hourly", Kind: "probe.run", Every: time.Hour},
	}
	if _, err := periodic.Apply(t.Context(), owner, all, nil); err != nil {
		t.Fatal(err)
	}
	if err := periodic.Pause(t.Context(), owner, "nightly", "bob", "until the <move>"); err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Viewer)
	p := b.get("/")
	b.want(p, http.StatusOK, "Schedule nightly is paused by bob: until the &lt;move&gt;", "Show schedules",
		`<span class="level paused">paused</span> Schedule nightly`)
	b.want(b.get("/schedules"), http.StatusOK, "Only an admin may pause, resume and run schedules")
	admin := s.as(api.Admin)
	p = admin.get("/")
	admin.want(p, http.StatusOK, `data-key="schedule nightly"`, "Resume…", `<div class="acts calm">`)
	for path, n := range map[string]int{"/": 2, "/schedules": 2} { // once in the form
		if p := admin.get(path); strings.Count(p.body, "until the &lt;move&gt;") != n ||
			strings.Contains(p.body, `class="main" name="act" value="resume"`) {
			t.Errorf("%s urges to end a pause, or hides its reason:\n%s", path, p.content())
		}
	}
	form := url.Values{"csrf": {token(t, p)}, "name": {"nightly"}, "act": {"resume"}, "reason": {"moved"},
		"to": {"overview"}}
	admin.want(admin.post("/schedule", form), http.StatusOK, "<h1>Overview</h1>", "nightly is resumed.")
	if err := periodic.Pause(t.Context(), owner, "nightly", "bob", "until the <move>"); err != nil {
		t.Fatal(err)
	}
	if limited := s.as(api.Producer, "probe.*").get("/"); strings.Contains(p.body, "hourly is paused") ||
		limited.status != http.StatusOK || strings.Contains(limited.body, "nightly") {
		t.Errorf("of two schedules one is paused, which a caller limited to the other one does not see:\n%s\n%s",
			p.content(), limited.content())
	}
}

// A page of schedules is bounded, and its pages have every schedule once.
func TestSchedulesInPages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var all []periodic.Schedule
	for i := range 120 {
		name := fmt.Sprintf("nightly-%03d", i)
		all = append(all, periodic.Schedule{Name: name, Kind: "report.make", Every: time.Hour})
	}
	if _, err := periodic.Apply(t.Context(), ledgertest.As(t, s.db, ledgertest.Owner), all, nil); err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Viewer)
	for _, path := range []string{"/schedules?after=%00", "/subscribers?after=%ff"} {
		if p := b.get(path); p.status >= http.StatusInternalServerError {
			t.Errorf("%s: status %d", path, p.status)
		}
	}
	var seen []int
	for path := "/schedules"; path != "" && len(seen) < 9; {
		p := b.get(path)
		b.want(p, http.StatusOK)
		seen = append(seen, strings.Count(p.body, ">nightly-"))
		_, rest, _ := strings.Cut(p.body, `rel="next" href="`)
		path, _, _ = strings.Cut(rest, `"`)
	}
	if fmt.Sprint(seen) != "[50 50 20]" {
		t.Errorf("the pages have %v schedules", seen)
	}
}
