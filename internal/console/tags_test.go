package console_test

import (
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/console"
	"github.com/taskledger/taskledger/ledger"
)

// The page Tasks finds the tasks of a tag beside its other filters, the page of a task links to them, and no act on all
// tasks of a filter is offered, because it has no tag.
func TestTasksByTag(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range 60 {
		o := &ledger.EnqueueOptions{}
		if i != 7 {
			o.Meta.Tags = []string{"<vip> & co"}
		}
		key := ledger.Key{Kind: "a", BizID: ledger.BizID(fmt.Sprintf("order-%03d", i))}
		if _, err := ledger.Enqueue(t.Context(), s.db, key, nil, o); err != nil {
			t.Fatal(err)
		}
	}
	s.project()
	b := s.as(api.Operator)
	const tag = "tag=%3Cvip%3E+%26+co"
	first := b.get("/tasks?state=available&" + tag)
	b.want(first, http.StatusOK, `value="&lt;vip&gt; &amp; co"`, "order-059", "order-010", `rel="next"`, "Release…")
	if strings.Contains(first.body, "order-007") || strings.Contains(first.body, "Cancel all…") {
		t.Errorf("the page has another task, or an act on all tasks: %s", first.content())
	}
	_, next, _ := strings.Cut(first.body, `rel="next" href="`)
	next, _, _ = strings.Cut(next, `"`)
	last := b.get(html.UnescapeString(next))
	b.want(last, http.StatusOK, "order-009", "order-000")
	for _, never := range []string{"order-007", "order-010", `rel="next"`} {
		if strings.Contains(last.body, never) {
			t.Errorf("the last page has %s", never)
		}
	}
	b.want(b.get("/tasks?prefix=order-00&kind=a&"+tag), http.StatusOK, "order-008", "order-000")
	b.want(b.get("/tasks?state=dead&"+tag), http.StatusOK, "No task matches.")
	b.want(b.get("/tasks?tag="+strings.Repeat("x", 256)), http.StatusBadRequest, "at most 255 bytes")
	p := b.get("/task?kind=a&biz_id=order-000")
	p.body = html.UnescapeString(p.body)
	b.want(p, http.StatusOK, `href="/tasks?`+tag+`"`)
}

// The page of a task links to its trace if that is valid.
func TestTraceOfATask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for name, parent := range map[string]string{"valid": "00-" + id + "-00f067aa0ba902b7-01", "forged": `"><script>`} {
		o := &ledger.EnqueueOptions{Meta: ledger.Meta{Traceparent: parent}}
		key := ledger.Key{Kind: "a", BizID: ledger.BizID(name)}
		if _, err := ledger.Enqueue(t.Context(), s.db, key, nil, o); err != nil {
			t.Fatal(err)
		}
	}
	b := s.as(api.Viewer)
	b.want(b.get("/task?kind=a&biz_id=valid"), http.StatusOK, `href="https://traces.example/`+id+`?from=ledger"`)
	if p := b.get("/task?kind=a&biz_id=forged"); strings.Contains(p.body, "traces.example") ||
		strings.Contains(p.body, "<script>") {
		t.Errorf("a trace that is not valid has a link:\n%s", p.content())
	}
	_, err := console.New(console.Config{DB: s.db, TraceURL: "javascript:alert({trace_id})"})
	if err == nil || !strings.Contains(err.Error(), "TraceURL must be an http or https URL") {
		t.Errorf("a TraceURL that is not of the web: %v", err)
	}
}
