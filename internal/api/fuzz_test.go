package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var (
	fuzzRequests = flag.Int("api-requests", 600, "number of requests of TestRequestsFromTheDocument")
	fuzzTime     = flag.Duration("api-time", 0, "time of TestRequestsFromTheDocument in place of the number")
	fuzzSeed     = flag.Uint64("api-seed", 0, "seed of TestRequestsFromTheDocument (default: random)")
)

// Random requests, made from the document with values that match it and values that do not, get no answer that the
// document does not have, no 5xx, and no hang; afterwards nothing of them is left.
func TestRequestsFromTheDocument(t *testing.T) {
	t.Parallel()
	seed := *fuzzSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	s := serve(t, nil)
	for i := range 5 {
		ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: ledger.BizID(fmt.Sprint(i))}, `{}`)
	}
	const workers = 4
	var group sync.WaitGroup
	statuses := make([]map[int]int, workers)
	for w := range workers {
		statuses[w] = map[int]int{}
		group.Go(func() {
			g := generator{Rand: rand.New(rand.NewPCG(seed, uint64(w))), document: readDocument(t)}
			isDone := func(n int) bool { return n >= *fuzzRequests/workers }
			if begun := time.Now(); *fuzzTime > 0 {
				isDone = func(int) bool { return time.Since(begun) > *fuzzTime }
			}
			for n := 0; !isDone(n); n++ {
				statuses[w][g.send(t, s)]++
			}
		})
	}
	group.Wait()
	s.awaitWaiting(0)
	all := map[int]int{}
	for _, m := range statuses {
		for status, n := range m {
			all[status] += n
		}
	}
	t.Logf("seed %d: %v", seed, all)
	for status := range all {
		if status >= http.StatusInternalServerError {
			t.Errorf("seed %d: status %d", seed, status)
		}
	}
	isLong := *fuzzTime > 0 || *fuzzRequests >= 10_000 // of 600 requests about two create a task
	if all[http.StatusOK] == 0 || all[http.StatusBadRequest] == 0 || isLong && all[http.StatusCreated] == 0 {
		t.Errorf("the requests are of too few kinds: %v", all)
	}
}

// generator makes requests.
type generator struct {
	*rand.Rand
	document *document
}

func pick[T any](g generator, from []T) T { return from[g.IntN(len(from))] }

// oneIn reports true once in n times.
func (g generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// send sends a random request and returns the status.
func (g generator) send(t *testing.T, s *server) int {
	template := pick(g, slices.Sorted(maps.Keys(g.document.Paths)))
	item := g.document.Paths[template]
	method := pick(g, slices.Sorted(maps.Keys(item.Operations)))
	operation := item.Operations[method]
	method = strings.ToUpper(method)
	path, query, header := template, url.Values{}, http.Header{}
	for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
		parameter := g.document.parameter(p)
		switch parameter.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+parameter.Name+"}", url.PathEscape(g.segment()))
		case "query":
			if !parameter.Required && g.oneIn(2) {
				continue
			}
			for range 1 + g.IntN(20)/19 {
				query.Add(parameter.Name, g.text(parameter.Schema))
			}
		case "header":
			if !g.oneIn(4) {
				continue
			}
			header.Set(parameter.Name, strings.Map(printableASCII, g.text(parameter.Schema)))
		}
	}
	if query.Has("wait") && !g.oneIn(5) {
		query.Set("wait", "0")
	}
	if n, err := strconv.Atoi(query.Get("wait")); err == nil && n > 1 && *fuzzTime == 0 {
		query.Set("wait", "1") // many seconds are for long runs
	}
	if header.Get("Prefer") != "" {
		header.Set("Prefer", pick(g, []string{"wait=0", "wait=1", "respond-async", "wait=x", ",;=",
			"wait=1, respond-async"}))
	}
	body := ""
	if operation.RequestBody != nil {
		body = g.body(g.document.requestBody(operation.RequestBody))
		header.Set("Content-Type", "application/json")
		if g.oneIn(30) {
			header.Set("Content-Type", "text/plain")
		}
	}
	if template == "/v1/events" && g.oneIn(3) {
		header.Set("Accept", "text/event-stream")
	}
	if g.oneIn(20) {
		method = pick(g, []string{"GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "POST"})
	}
	header.Set("Authorization", "Bearer "+s.tokens[pick(g, []api.Role{api.Viewer, api.Producer, api.Operator, api.Admin,
		api.Admin, api.Admin})])
	target := s.url + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return g.exchange(t, s, method, target, header, body)
}

// exchange sends a request and checks the answer.
func (g generator) exchange(t *testing.T, s *server, method, target string, header http.Header, body string) int {
	ctx, cancel := context.WithTimeout(t.Context(), 2*api.MaxWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		t.Errorf("%s %s: %v", method, target, err)
		return 0
	}
	r.Header = header
	response, err := s.http.Client().Do(r)
	if err != nil {
		t.Errorf("%s %s %v %.300q: %v", method, target, header, body, err)
		return 0
	}
	defer response.Body.Close()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		_, _ = io.ReadFull(response.Body, make([]byte, 12)) // and leave
		return response.StatusCode
	}
	text, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%s %s: %v", method, target, err)
	}
	a := answer{response.StatusCode, response.Header, text}
	if method != http.MethodHead {
		a.check(t, r)
	}
	if a.status >= http.StatusInternalServerError {
		t.Errorf("%s %s %v %.300q: %d %s", method, target, header, body, a.status, text)
	}
	return a.status
}

func printableASCII(c rune) rune {
	if c < ' ' || c > '~' {
		return -1
	}
	return c
}

// nasty are texts that have broken parsers.
var nasty = []string{"", "0", "-1", "1", "9223372036854775807", "9223372036854775808", "1e400", "NaN", "true", "null",
	"\x00", "\xff\xfe", "ä€😀", "\u202e", "a/b", "..", ".", "//", "%2F", "%", "a:release", "'; drop table x; --",
	"\\u0000", "{}", "[]", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "-0001-01-01T00:00:00Z", "a.b", "a..b",
	"taskledger.alarm", "eyJkIjp7fX0", "eyJkIjp7Im8iOiIiLCJpIjoiIn0sInAiOnsic2VlbiI6e319fQ", strings.Repeat("a", 300),
	strings.Repeat("é", 127)}

// segment returns a text for a path.
func (g generator) segment() string {
	if g.oneIn(2) {
		return pick(g, []string{"a.b", "0", "1", "2", "c.d"})
	}
	if text := pick(g, nasty); text != "" && text != "." && text != ".." {
		return text
	}
	return "a.b"
}

// text returns a text for a parameter.
func (g generator) text(s *schema) string {
	if g.oneIn(5) {
		return pick(g, nasty)
	}
	switch v := g.value(s, 0).(type) {
	case string:
		return v
	case []any:
		if len(v) == 0 {
			return ""
		}
		return fmt.Sprint(v[0])
	default:
		return fmt.Sprint(v)
	}
}

// body returns a body that matches the document, or nearly so.
func (g generator) body(b *requestBody) string {
	if g.oneIn(20) {
		return pick(g, []string{"", "{", "[]", "null", "1", `{"a":1}`, "\xff", strings.Repeat("[", 20_000),
			strings.Repeat(`{"args":`, 5000)})
	}
	text, err := json.Marshal(g.value(b.Content["application/json"].Schema, 0))
	if err != nil {
		return "{}"
	}
	if g.oneIn(10) {
		at := g.IntN(len(text))
		text = slices.Concat(text[:at], []byte(pick(g, nasty)), text[at:])
	}
	return string(text)
}

// value returns a value that matches a schema most of the time.
func (g generator) value(s *schema, depth int) any {
	s = g.document.schema(s)
	switch {
	case s == nil || g.oneIn(25):
		return pick(g, []any{nil, true, -1, 1.5, math.MaxInt64, "x", []any{}, map[string]any{}, pick(g, nasty)})
	case len(s.Enum) > 0:
		return pick(g, s.Enum)
	case s.Type.include("object"):
		object := map[string]any{}
		for name, property := range s.Properties {
			if slices.Contains(s.Required, name) || g.oneIn(3) || name == "biz_id" {
				object[name] = g.value(property, depth+1)
			}
		}
		return object
	case s.Type.include("array"):
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.value(s.Items, depth+1))
		}
		return list
	case s.Type.include("integer"), s.Type.include("number"):
		return pick(g, []any{0, 1, 2, 63, 100, 1000, 3600})
	case s.Type.include("boolean"):
		return g.oneIn(2)
	case s.Format == "date-time":
		return time.Unix(g.Int64N(4e9), 0).UTC().Format(time.RFC3339)
	case s.Type.include("string"):
		return pick(g, []string{"a.b", "c.d", "e", "0", "1", fmt.Sprint(g.IntN(1000))})
	}
	return map[string]any{"x": []any{1, "y"}}
}
