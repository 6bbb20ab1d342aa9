package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The page of a task has its predecessors, and that of a predecessor has the tasks that wait for it.
func TestPredecessorsOfATask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	part, whole := ledgertest.Key(t, "part/p-1"), ledgertest.Key(t, "whole/w-1")
	ledgertest.Enqueue(t, s.db, part, `{}`)
	if _, err := ledger.Enqueue(t.Context(), s.db, whole, nil,
		&ledger.EnqueueOptions{After: []ledger.Key{part}}); err != nil {
		t.Fatal(err)
	}
	s.project()
	b := s.as(api.Viewer)
	for path, want := range map[string]string{"/task?kind=whole&biz_id=w-1": "Runs after",
		"/task?kind=part&biz_id=p-1": "Runs before"} {
		p := b.get(path)
		b.want(p, http.StatusOK)
		n := strings.Count(p.content(), `<rect width="196"`)
		if n != 2 || !strings.Contains(p.body, `class="wait" d="M`) {
			t.Errorf("%s: the graph has %d tasks", path, n)
		}
		_, tree, _ := strings.Cut(p.body, want)
		if !strings.Contains(tree, "p-1") && !strings.Contains(tree, "w-1") {
			t.Errorf("%s: no %s", path, want)
		}
	}
}
