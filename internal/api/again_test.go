package api_test

import (
	"net/http"
	"testing"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A caller reruns, replaces and follows only the tasks that it has enqueued itself, unless it is an operator: neither
// another caller's, nor another login's, even with its own name as actor.
func TestRunsOfOtherCallers(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	const tasks, batch = "/v1/tasks", "/v1/tasks:batch"
	task := func(id, args, ifExists string) string {
		return `{"kind":"a.b","biz_id":"` + id + `","args":` + args + `,"if_exists":"` + ifExists + `"}`
	}
	s.call(api.Producer, http.MethodPost, tasks, task("waits", "1", "same"))
	s.call(api.Producer, http.MethodPost, tasks, task("runs", "1", "same"))
	app := ledgertest.As(t, s.db, "producer", "worker")
	ledgertest.Append(t, app, ledgertest.Key(t, "a.b/runs"), ledger.EventStarted)
	o := &ledger.EnqueueOptions{Actor: "a-worker"}
	if _, err := ledger.Enqueue(t.Context(), app, ledgertest.Key(t, "a.b/login"), []byte("1"), o); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"waits", "runs", "login"} {
		for _, ifExists := range []string{"rerun", "replace", "follow"} {
			body := task(id, "2", ifExists)
			s.wantProblem(s.call(api.Worker, http.MethodPost, tasks, body), http.StatusForbidden, "forbidden")
			body = `{"tasks":[` + task("new", "2", "rerun") + `,` + body + `]}`
			s.wantProblem(s.call(api.Worker, http.MethodPost, batch, body), http.StatusForbidden, "forbidden")
		}
		if a := s.call(api.Worker, http.MethodPost, tasks, task(id, "2", "ignore")); a.status != http.StatusOK {
			t.Errorf("ignore: %d %s", a.status, a.body)
		}
		if stored := s.task("a.b/" + id); string(stored.Args) != "1" {
			t.Errorf("%s has args %s", id, stored.Args)
		}
	}

	enqueue := func(role api.Role, body string) {
		t.Helper()
		if e := decode[client.Enqueued](s, s.call(role, http.MethodPost, tasks, body), http.StatusCreated); !e.New {
			t.Errorf("%s: %+v", role, e)
		}
	}
	enqueue(api.Worker, task("new", "2", "rerun")) // no batch has left it
	enqueue(api.Producer, task("waits", "2", "replace"))
	enqueue(api.Producer, task("runs", "2", "follow"))
	enqueue(api.Producer, task("runs", "3", "follow"))
	enqueue(api.Operator, task("runs", "4", "follow"))
	s.wantProblem(s.call(api.Producer, http.MethodPost, tasks, task("runs", "5", "follow")), http.StatusForbidden,
		"forbidden")
	enqueue(api.Operator, task("waits", "3", "replace"))
	s.wantProblem(s.call(api.Producer, http.MethodPost, tasks, task("waits", "4", "replace")), http.StatusForbidden,
		"forbidden")
}
