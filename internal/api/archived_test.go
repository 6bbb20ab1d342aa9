package api_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// A task and its events are the same after their archiving, in pages, too. Without an archive the answer is where they
// are.
func TestArchivedTaskIsRead(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	source := archive.Source{Open: func(place string) (archive.Store, error) { return archive.Directory(place), nil }}
	s := serve(t, func(c *api.Config) {
		c.Archived = func(ctx context.Context, a *ledger.ArchivedError) (ledger.Task, []ledger.Event, error) {
			events, err := source.Events(ctx, a)
			if err != nil {
				return ledger.Task{}, nil, err
			}
			task, err := archive.Task(a, events)
			return task, events, err
		}
	})
	key := ledgertest.Key(t, "coupon.send/A-1")
	owner := ledgertest.As(t, s.db, ledgertest.Owner)
	ledgertest.Enqueue(t, owner, key, `{"percent":10}`)
	ledgertest.Append(t, owner, key, ledger.EventStarted, ledger.EventSucceeded)
	const path = "/v1/tasks/coupon.send/A-1"
	task := decode[ledger.Task](s, s.call(api.Viewer, "GET", path, ""), http.StatusOK)
	events := s.call(api.Viewer, "GET", path+"/events", "").body

	(&servicetest.Bundle{T: t, DB: owner, AllAsOwner: true}).Project()
	files := archiver.In(owner, archive.Directory(place), place)
	if r, err := archiver.Run(t.Context(), owner, archiver.Options{Files: files}); err != nil || r.Tasks != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	archived := decode[ledger.Task](s, s.call(api.Viewer, "GET", path+"?wait=5", ""), http.StatusOK)
	if archived.ArchivedAt.IsZero() || archived.Version != task.Version || string(archived.Args) != string(task.Args) {
		t.Errorf("%+v", archived)
	}
	if got := s.call(api.Viewer, "GET", path+"/events", "").body; string(got) != string(events) {
		t.Errorf("got %s, want %s", got, events)
	}
	tag := s.call(api.Viewer, "GET", path, "").header.Get("Etag")
	unchanged := s.call(api.Viewer, "GET", path+"?wait=1", "", "If-None-Match", tag)
	if tag == "" || unchanged.status != http.StatusNotModified {
		t.Errorf("a wait for another version than %s: %d %s", tag, unchanged.status, unchanged.body)
	}
	next := "0"
	for n := range 3 {
		page := decode[client.List[ledger.Event]](s, s.call(api.Viewer, "GET", path+"/events?limit=1&after="+next, ""),
			http.StatusOK)
		if len(page.Items) != 1 || page.Items[0].Version != ledger.Version(n+1) || (page.Next == "") != (n == 2) {
			t.Errorf("page %d: %+v", n, page)
		}
		next = page.Next
	}
	again := decode[client.Enqueued](s, s.call(api.Producer, "POST", "/v1/tasks",
		`{"kind":"coupon.send","biz_id":"A-1","check_archive":true}`), http.StatusOK)
	if again.New || !again.Archived || again.State != ledger.StateSucceeded || again.Version != 3 {
		t.Errorf("an enqueue that checks the archive: %+v", again)
	}
	waited := func(s *server) *ledger.Task {
		t.Helper()
		answer := decode[client.Enqueued](s, s.call(api.Producer, "POST", "/v1/tasks",
			`{"kind":"coupon.send","biz_id":"A-1","check_archive":true}`, "Prefer", "wait=5"), http.StatusOK)
		if !answer.Archived || answer.State != ledger.StateSucceeded || answer.Version != 3 {
			t.Errorf("an enqueue that checks the archive and waits: %+v", answer)
		}
		return answer.Task
	}
	if got := waited(s); got == nil || !got.EnqueuedAt.Equal(task.EnqueuedAt) || got.ArchivedAt.IsZero() {
		t.Errorf("an enqueue that checks the archive and waits: task %+v", got)
	}
	s.wantProblem(s.call(api.Operator, "POST", path+":cancel", ""), http.StatusNotFound, "unknown_task")

	if err := os.Rename(place, place+"-away"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, path + "/events"} {
		p := s.wantProblem(s.call(api.Viewer, "GET", path, ""), http.StatusServiceUnavailable, "unavailable")
		if !strings.Contains(p.Detail, place) || !strings.Contains(p.Cure, "archive") {
			t.Errorf("%s while the archive is away: %+v", path, p)
		}
	}

	waiter, err := outbox.NewWaiter(outbox.WaiterConfig{DB: s.db})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(waiter.Close)
	without := serveOn(t, s.db, func(c *api.Config) { c.Waiter = waiter })
	if got := waited(without); got != nil {
		t.Errorf("an enqueue that checks the archive and waits, without its files: task %+v", got)
	}
	for _, path := range []string{path, path + "/events"} {
		p := without.wantProblem(without.call(api.Viewer, "GET", path, ""), http.StatusNotFound, "unknown_task")
		if !strings.Contains(p.Detail, place) {
			t.Errorf("%s: %+v", path, p)
		}
	}
}
