package console_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// An archived task is found by its key. Its page states when it was archived, and how it runs again.
func TestArchivedTask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledger.Key{Kind: "coupon.send", BizID: "order-1"}
	ledgertest.Enqueue(t, s.db, k, `{}`)
	ledgertest.Append(t, ledgertest.As(t, s.db, ledgertest.Owner), k, ledger.EventStarted, ledger.EventSucceeded)
	s.project()
	o := archiver.Options{Reason: "a test", Actor: "alice"}
	if _, err := archiver.Run(t.Context(), ledgertest.As(t, s.db, "archiver"), o); err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Viewer)
	b.want(b.get("/find?q=coupon.send/order-1"), http.StatusOK, "/task?biz_id=order-1")
	b.want(b.get("/task?"+keyOf(k)), http.StatusOK, "<h1>order-1</h1>", "Archived: its events",
		"none: they were not kept", "taskledger enqueue coupon.send order-1 --if-exists rerun",
		`class="state succeeded"`)
}

// The page of an archived task shows its events from the archive, and no acts.
func TestArchivedTaskIsShown(t *testing.T) {
	t.Parallel()
	source := archive.Source{Open: func(place string) (archive.Store, error) { return archive.Directory(place), nil }}
	s := serveWith(t, func(c *api.Config) {
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
	s.project()
	place := t.TempDir()
	files := archiver.In(owner, archive.Directory(place), place)
	if r, err := archiver.Run(t.Context(), owner, archiver.Options{Files: files}); err != nil || r.Tasks != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	b := s.as(api.Operator)
	const path = "/task?kind=coupon.send&biz_id=A-1"
	b.want(b.get(path), http.StatusOK, "from the archive", "succeeded", "percent", `data-key="e1"`)
	b.want(b.get(path+"&version=2"), http.StatusOK, "As of version 2 of 3", "from the archive")
	b.want(b.get(path+"&version=4"), http.StatusBadRequest, "between 1 and 3")
}
