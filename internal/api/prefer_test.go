package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
)

// The header Prefer is read by RFC 7240: a quoted string is one value, also with commas in it.
func TestParsePrefer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		lines   []string
		wait    time.Duration
		isAsync bool
		applied []string
	}{
		{name: "none", lines: nil},
		{name: "wait", lines: []string{"wait=20"}, wait: 20 * time.Second, applied: []string{"wait=20"}},
		{name: "less than a proxy waits", lines: []string{"wait=999"}, wait: maxWait, applied: []string{"wait=50"}},
		{name: "more than a number", lines: []string{"wait=99999999999999999999"}, wait: maxWait,
			applied: []string{"wait=50"}},
		{name: "spaces and case", lines: []string{" Wait = 5 ; a=b , RESPOND-ASYNC"}, wait: 5 * time.Second,
			isAsync: true, applied: []string{"wait=5", "respond-async"}},
		{name: "two lines", lines: []string{"respond-async", "wait=5"}, wait: 5 * time.Second, isAsync: true,
			applied: []string{"respond-async", "wait=5"}},
		{name: "quoted", lines: []string{`wait="5"`}, wait: 5 * time.Second, applied: []string{"wait=5"}},
		{name: "quoted with an escape", lines: []string{`wait="\5"`}, wait: 5 * time.Second,
			applied: []string{"wait=5"}},
		{name: "in the value of another one", lines: []string{`foo="a,wait=50"`}},
		{name: "in the value of a parameter", lines: []string{`foo; bar="x, respond-async, wait=50"`}},
		{name: "after a quoted comma", lines: []string{`foo="a,b", wait=5`}, wait: 5 * time.Second,
			applied: []string{"wait=5"}},
		{name: "after an escaped quote", lines: []string{`foo="a\",wait=50", wait=5`}, wait: 5 * time.Second,
			applied: []string{"wait=5"}},
		{name: "a quote without an end", lines: []string{`foo="a, wait=50`, `wait=5`}, wait: 5 * time.Second,
			applied: []string{"wait=5"}},
		{name: "the first one counts", lines: []string{"wait=0, wait=5"}, applied: []string{"wait=0"}},
		{name: "a quoted parameter", lines: []string{`wait=5;a=";wait=7", wait=6`}, wait: 5 * time.Second,
			applied: []string{"wait=5"}},
		{name: "no number", lines: []string{"wait=soon"}},
		{name: "a fraction", lines: []string{"wait=1.5"}},
		{name: "no value", lines: []string{"wait=, wait"}},
		{name: "negative", lines: []string{"wait=-1"}},
		{name: "half a quoted string", lines: []string{`wait="5`}},
		{name: "empty elements", lines: []string{",;=,,", "", `"`}},
	} {
		p := parsePrefer(http.Header{"Prefer": test.lines})
		if p.wait != test.wait || p.isAsync != test.isAsync {
			t.Errorf("%s: %+v", test.name, p)
		}
		if diff := difference.Of(test.applied, p.applied); diff != "" {
			t.Errorf("%s: applied (-want +have):\n%s", test.name, diff)
		}
	}
}
