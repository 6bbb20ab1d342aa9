package api_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// A body that is small after compression, and has very many values that are more after decoding, costs a bounded
// amount of memory.
func TestMemoryOfBodies(t *testing.T) {
	s := serve(t, nil)
	many := func(begin, value string, n int, end string) string {
		return begin + value + strings.Repeat(","+value, n) + end
	}
	names := []byte(`{"a":0`)
	for i := range 700_000 {
		names = fmt.Appendf(names, `,"%d":0`, i)
	}
	const batch = "/v1/tasks:batch"
	for _, test := range []struct{ name, path, body, field string }{
		{name: "tasks", path: batch, body: many(`{"tasks":[`, `{}`, 2_700_000, `]}`), field: "tasks"},
		{name: "null tasks", path: batch, body: many(`{"tasks":[`, `null`, 1_500_000, `]}`), field: "body"},
		{name: "members", path: batch, body: string(names) + "}", field: "a"},
		{name: "same member", path: batch, body: many(`{`, `"tasks":[{}]`, 600_000, `}`), field: "tasks"},
		{name: "predecessors", path: "/v1/tasks",
			body: many(`{"kind":"a","biz_id":"1","after":{"keys":[`, `{}`, 300_000, `]}}`), field: "after"},
		{name: "tags", path: "/v1/tasks",
			body: many(`{"kind":"a","biz_id":"1","tags":[`, `""`, 300_000, `]}`), field: "meta"},
	} {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		if _, err := z.Write([]byte(test.body)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := s.call("producer", "POST", test.path, zipped.String(), "Content-Encoding", "gzip")
		runtime.ReadMemStats(&after)
		if p := s.wantProblem(a, http.StatusBadRequest, "invalid"); p.Field != test.field {
			t.Errorf("%s: the field is %s: %s", test.name, p.Field, p.Detail)
		}
		allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s: %d kB of body, %d MiB allocated", test.name, zipped.Len()>>10, allocated)
		if allocated > 160 {
			t.Errorf("%s: %d MiB were allocated", test.name, allocated)
		}
	}
}
