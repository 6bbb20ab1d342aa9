package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A change is made only if the version of the task meets the preconditions of RFC 9110, 13.1. If not, nothing changes.
func TestPreconditionsOfChanges(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	k := ledger.Key{Kind: "a.b", BizID: "1"}
	ledgertest.Enqueue(t, s.db, k, `{}`)
	path := client.Path(k)
	s.call(api.Operator, "POST", path+":reschedule", `{"in":3600}`)
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
	}{
		{name: "an old version", method: "DELETE", headers: []string{"If-Match", `"1"`}},
		{name: "a version that does not exist", method: "DELETE", headers: []string{"If-Match", `"99"`}},
		{name: "a foreign tag", method: "DELETE", headers: []string{"If-Match", `"2x"`}},
		{name: "a weak tag", method: "DELETE", headers: []string{"If-Match", `W/"2"`}},
		{name: "a change by POST", method: "POST", path: ":release", headers: []string{"If-Match", `"1", "3"`}},
		{name: "a bury", method: "POST", path: ":bury", headers: []string{"If-Match", `"1"`}},
		{name: "a time", method: "POST", path: ":reschedule", body: `{"in":1}`, headers: []string{"If-Match", `"1"`}},
		{name: "in a state that does not allow it", method: "POST", path: ":release",
			headers: []string{"If-Match", `"1"`}},
		{name: "any version", method: "DELETE", headers: []string{"If-None-Match", "*"}},
		{name: "not this version", method: "DELETE", headers: []string{"If-None-Match", `"7", W/"2"`}},
		{name: "a read", method: "GET", headers: []string{"If-Match", `"1"`}},
	} {
		a := s.call(api.Operator, test.method, path+test.path, test.body, test.headers...)
		p := s.wantProblem(a, http.StatusPreconditionFailed, "precondition")
		if p.Version != 2 || p.State != ledger.StateScheduled || p.Field != test.headers[0] ||
			a.header.Get("ETag") != `"2"` {
			t.Errorf("%s: %+v, %v", test.name, p, a.header)
		}
		if task := s.task(k.String()); task.Version != 2 {
			t.Fatalf("%s: the task is at version %d", test.name, task.Version)
		}
	}
	missing := s.call(api.Operator, "DELETE", "/v1/tasks/a.b/2", "", "If-Match", `"1"`)
	s.wantProblem(missing, http.StatusNotFound, "unknown_task")
	for i, headers := range [][]string{
		{"If-Match", `"2"`}, {"If-Match", `"1", "3"`}, {"If-Match", "*"}, {"If-Match", `"5-gzip"`},
		{"If-None-Match", `"1"`},
	} {
		a := s.call(api.Operator, "POST", path+":reschedule", `{"in":3600}`, headers...)
		if task := decode[ledger.Task](s, a, http.StatusOK); int(task.Version) != 3+i {
			t.Errorf("%v: the task is at version %d", headers, task.Version)
		}
	}
}

// Of changes at the same time with the same tag, one is made: the append decides.
func TestPreconditionIsDecidedByTheAppend(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for round := range 10 {
		k := ledger.Key{Kind: "a.b", BizID: ledger.BizID(fmt.Sprint(round))}
		ledgertest.Enqueue(t, s.db, k, `{}`)
		counts := s.together(8, func() int {
			return s.call(api.Operator, "POST", client.Path(k)+":reschedule", `{"in":3600}`, "If-Match", `"1"`).status
		})
		if counts[http.StatusOK] != 1 || counts[http.StatusPreconditionFailed] != 7 || s.task(k.String()).Version != 2 {
			t.Fatalf("got %v, version %d", counts, s.task(k.String()).Version)
		}
	}
}

// Of requests at the same time that enqueue a task with If-None-Match: *, one does; the others do not have its args.
func TestCreateOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for round := range 10 {
		body := fmt.Sprintf(`{"kind":"a.b","biz_id":"%d"}`, round)
		counts := s.together(8, func() int {
			return s.call(api.Producer, "POST", "/v1/tasks", body, "If-None-Match", "*").status
		})
		if counts[http.StatusCreated] != 1 || counts[http.StatusPreconditionFailed] != 7 {
			t.Fatalf("got %v", counts)
		}
	}
	a := s.call(api.Producer, "POST", "/v1/tasks", `{"kind":"a.b","biz_id":"1","args":{"n":1}}`, "If-None-Match", "*")
	p := s.wantProblem(a, http.StatusPreconditionFailed, "precondition")
	if p.State != ledger.StateAvailable || p.Version != 1 || a.header.Get("Location") != "/v1/tasks/a.b/1" {
		t.Errorf("%+v, %v", p, a.header)
	}
}

// together makes calls at the same time and counts their results.
func (s *server) together(n int, call func() int) map[int]int {
	var mu sync.Mutex
	var group sync.WaitGroup
	counts := map[int]int{}
	for range n {
		group.Go(func() {
			status := call()
			mu.Lock()
			defer mu.Unlock()
			counts[status]++
		})
	}
	group.Wait()
	return counts
}

// A tag that a proxy has changed names the version all the same: a client that waits with it does not spin.
func TestTagsOfProxies(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	k := ledger.Key{Kind: "a.b", BizID: "1"}
	ledgertest.Enqueue(t, s.db, k, `{}`)
	for tag, status := range map[string]int{
		`"1"`: 304, `W/"1"`: 304, `"1-gzip"`: 304, `"1--gzip"`: 304, `W/"1;gzip"`: 304, `"7","1"`: 304, "*": 304,
		`"a\", "1"`: 304, `"10"`: 200, `"2-gzip"`: 200, `"x"`: 200, `"11-gzip"`: 200, `"a,1"`: 200,
	} {
		if a := s.call(api.Viewer, "GET", client.Path(k)+"?wait=0", "", "If-None-Match", tag); a.status != status {
			t.Errorf("%s: got %d, want %d", tag, a.status, status)
		}
	}
}

// A compressed answer has another strong tag than the plain one (RFC 9110, 8.8.3), and both name the version.
func TestTagsOfCompressedAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	k := ledger.Key{Kind: "a.b", BizID: "1"}
	ledgertest.Enqueue(t, s.db, k, `{}`)
	dead := ledgertest.Request(k, 1, ledger.EventBuried)
	dead.Data = json.RawMessage(`{"reason":"` + strings.Repeat("no answer ", 500) + `"}`)
	if _, err := ledger.Append(t.Context(), s.db, dead); err != nil {
		t.Fatal(err)
	}
	plain := s.call(api.Viewer, "GET", client.Path(k), "", "Accept-Encoding", "identity")
	zipped := s.call(api.Viewer, "GET", client.Path(k), "") // the client asks for gzip, and decompresses the answer
	if plain.status != http.StatusOK || zipped.status != http.StatusOK {
		t.Fatalf("got %d and %d", plain.status, zipped.status)
	}
	for have, want := range map[string]string{plain.header.Get("ETag"): `"2"`, zipped.header.Get("ETag"): `"2-gzip"`} {
		if have != want {
			t.Errorf("ETag %s, want %s", have, want)
		}
		again := s.call(api.Viewer, "GET", client.Path(k), "", "If-None-Match", want)
		if again.status != http.StatusNotModified || again.header.Get("ETag") != want {
			t.Errorf("If-None-Match %s: got %d with ETag %s", want, again.status, again.header.Get("ETag"))
		}
	}
	released := s.call(api.Operator, "POST", client.Path(k)+":release", `{}`, "If-Match", `"2-gzip"`)
	if released.status >= 300 {
		t.Errorf("If-Match with the tag of the compressed answer: got %d %s", released.status, released.body)
	}
}

// The answer without a body has the headers for caches of the one with a body (RFC 9110, 15.4.5).
func TestNotModifiedHasTheHeadersForCaches(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	k := ledger.Key{Kind: "a.b", BizID: "1"}
	ledgertest.Enqueue(t, s.db, k, `{}`)
	full := s.call(api.Viewer, "GET", client.Path(k), "")
	not := s.call(api.Viewer, "GET", client.Path(k), "", "If-None-Match", `"1"`)
	if full.status != http.StatusOK || not.status != http.StatusNotModified {
		t.Fatalf("got %d and %d", full.status, not.status)
	}
	for _, name := range []string{"Cache-Control", "ETag", "Vary"} {
		if got, want := not.header.Get(name), full.header.Get(name); got != want || want == "" {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// A byte order mark before a body, as some platforms write it, is no part of it.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	a := s.call(api.Producer, "POST", "/v1/tasks", "\ufeff"+`{"kind":"a.b","biz_id":"1"}`)
	if a.status != http.StatusCreated {
		t.Errorf("got %d %s", a.status, a.body)
	}
}
