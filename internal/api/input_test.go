package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// ioTimeout bounds a connection of a test.
const ioTimeout = time.Minute

// Bad input is a 4xx that names the field.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "1"}, `{}`)
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	veryDeep := strings.Repeat("[", 100_000)
	for _, test := range []struct {
		name, path, body string // without a path: POST /v1/tasks
		headers          []string
		status           int // 0: 400 invalid
		code, field      string
	}{
		{name: "no body", field: "body"},
		{name: "array", body: `[]`, field: "body"},
		{name: "null", body: `null`, field: "body"},
		{name: "two", body: `{"kind":"a","biz_id":"1"}{}`, field: "body"},
		{name: "type", body: `{"kind":1}`, field: "kind"},
		{name: "case", body: `{"Kind":"a","biz_id":"1"}`, field: "Kind"},
		{name: "unknown", body: `{"kind":"a","biz_id":"1","x":1}`, field: "x"},
		{name: "member twice", body: `{"kind":"a","biz_id":"1","kind":"b"}`, field: "kind"},
		{name: "UTF-8", body: "{\"kind\":\"a\",\"biz_id\":\"\xff\"}", field: "body"},
		{name: "surrogate", body: `{"kind":"a","biz_id":"1","args":"\ud800"}`,
			status: 201},
		{name: "NUL", body: `{"kind":"a","biz_id":"\u0000"}`, field: "biz_id"},
		{name: "NUL in a tag", body: `{"kind":"a","biz_id":"2","tags":["\u0000"]}`, field: "tags"},
		{name: "reserved", body: `{"kind":"taskledger.alarm","biz_id":"1"}`, field: "kind"},
		{name: "deep", body: `{"kind":"a","biz_id":"1","args":` + deep + `}`, field: "args"},
		{name: "very deep", body: `{"kind":"a","args":` + veryDeep, field: "body"},
		{name: "times", body: `{"kind":"a","biz_id":"3","run_at":"2030-01-01T00:00:00Z","run_in":1}`, field: "run_in"},
		{name: "end of time", body: `{"kind":"a","biz_id":"3","run_at":"9998-12-31T23:59:59.999999Z"}`,
			field: "run_at"},
		{name: "end of time of a change", path: "/v1/tasks/a.b/1:reschedule",
			body: `{"at":"9998-12-31T23:59:59.999999Z"}`, field: "at"},
		{name: "time", body: `{"kind":"a","biz_id":"3","run_at":"tomorrow"}`, field: "run_at"},
		{name: "time of a batch", path: "/v1/tasks:batch",
			body:  `{"tasks":[{"kind":"a","biz_id":"3"},{"kind":"a","biz_id":"4","finish_by":"17:00"}]}`,
			field: "finish_by"},
		{name: "time of a change", path: "/v1/tasks/a.b/1:reschedule", body: `{"at":"2030-01-01"}`, field: "at"},
		{name: "zero time", body: `{"kind":"a","biz_id":"3","start_by":"0001-01-01T00:00:00Z"}`, field: "start_by"},
		{name: "zero time elsewhere", body: `{"kind":"a","biz_id":"3","run_at":"0001-01-01T02:00:00+02:00"}`,
			field: "run_at"},
		{name: "zero time, escaped name", body: `{"kind":"a","biz_id":"3","finish\u005fby":"0001-01-01T00:00:00Z"}`,
			field: "finish_by"},
		{name: "zero time of a batch", path: "/v1/tasks:batch", field: "finish_by",
			body: `{"tasks":[{"kind":"a","biz_id":"3"},{"kind":"a","biz_id":"4","finish_by":"0001-01-01T00:00:00Z"}]}`},
		{name: "zero time, change", path: "/v1/tasks/a.b/1:reschedule", body: `{"at":"0001-01-01T00:00:00Z","in":1}`,
			field: "at"},
		{name: "partition", body: `{"kind":"a","biz_id":"3","partition":"a\u0000b"}`, field: "partition"},
		{name: "zero data version", body: `{"kind":"a","biz_id":"3","data_version":0}`, field: "data_version"},
		{name: "number of a time", body: `{"kind":"a","biz_id":"3","run_at":17}`, field: "run_at"},
		{name: "year", body: `{"kind":"a","biz_id":"3","run_at":"9999-12-31T00:00:00Z"}`, field: "run_at"},
		{name: "delay", body: `{"kind":"a","biz_id":"3","run_in":1e300}`, field: "run_in"},
		{name: "retry", body: `{"kind":"a","biz_id":"3","retry":{"max":-1}}`, field: "retry.max"},
		{name: "nested name in capitals", field: "after.Keys",
			body: `{"kind":"a","biz_id":"3","after":{"Keys":[],"keys":[{"kind":"a","biz_id":"1"}]}}`},
		{name: "nested name twice", field: "after.keys[0].kind",
			body: `{"kind":"a","biz_id":"3","after":{"keys":[{"kind":"b","kind":"a","biz_id":"1"}]}}`},
		{name: "unknown nested name", field: "after.keys[0].id",
			body: `{"kind":"a","biz_id":"3","after":{"keys":[{"kind":"a","biz_id":"1","id":2}]}}`},
		{name: "half of a surrogate pair", body: `{"kind":"a","biz_id":"\ud83d"}`, field: "biz_id"},
		{name: "shard", body: `{"kind":"a","biz_id":"3","shard":64}`, field: "shard"},
		{name: "large args", body: `{"kind":"a","biz_id":"4","args":"` + strings.Repeat("x", 300_000) + `"}`,
			field: "args"},
		{name: "large body", body: strings.Repeat(" ", 2<<20), status: 413,
			code: "too_large"},
		{name: "text", body: `{}`, headers: []string{"Content-Type", "text/plain"},
			status: 415, code: "media_type"},
		{name: "form", body: `a=b`,
			headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, code: "media_type"},
		{name: "encoding", body: `{}`, headers: []string{"Content-Encoding", "br"},
			status: 415, code: "media_type"},
		{name: "no gzip", body: `{}`, headers: []string{"Content-Encoding", "gzip"}, field: "body"},
		{name: "path that clients remove", body: `{"kind":"a","biz_id":".."}`, field: "biz_id"},
		{name: "path that clients remove, as key", body: `{"kind":"a"}`, headers: []string{"Idempotency-Key", "."},
			field: "biz_id"},
		{name: "path that clients remove, in a batch", path: "/v1/tasks:batch",
			body: `{"tasks":[{"kind":"a","biz_id":"."}]}`, field: "biz_id"},
		{name: "tags of a new task", body: `{"kind":"a","biz_id":"3"}`, headers: []string{"If-Match", `"1"`},
			field: "If-Match"},
		{name: "only a new task, and again", body: `{"kind":"a","biz_id":"3","if_exists":"rerun"}`,
			headers: []string{"If-None-Match", "*"}, field: "If-None-Match"},
		{name: "only a new task, and replaced", body: `{"kind":"a","biz_id":"3","if_exists":"replace"}`,
			headers: []string{"If-None-Match", "*"}, field: "If-None-Match"},
		{name: "old tag of a new task", body: `{"kind":"a","biz_id":"3"}`, headers: []string{"If-None-Match", `"1"`},
			field: "If-None-Match"},
		{name: "tags of a batch", path: "/v1/tasks:batch", body: `{"tasks":[{"kind":"a","biz_id":"3"}]}`,
			headers: []string{"If-None-Match", "*"}, field: "If-None-Match"},
		{name: "tags of a kind", path: "/v1/kinds/a:pause", body: `{}`, headers: []string{"If-Match", "*"},
			field: "If-Match"},
		{name: "time of a version", path: "/v1/tasks/a.b/1:cancel", body: `{}`,
			headers: []string{"If-Unmodified-Since", "Fri, 27 Nov 2026 20:00:00 GMT"}, field: "If-Unmodified-Since"},
		{name: "no tag", path: "/v1/tasks/a.b/1:cancel", body: `{}`, headers: []string{"If-Match", ""},
			field: "If-Match"},
		{name: "tag without quotes", path: "/v1/tasks/a.b/1:cancel", body: `{}`, headers: []string{"If-Match", "1"},
			field: "If-Match"},
		{name: "wait", path: "/v1/tasks/a.b/1?wait=-1", field: "wait"},
		{name: "parameter", path: "/v1/tasks?Kind=a", field: "Kind"},
		{name: "twice", path: "/v1/tasks?limit=1&limit=2", field: "limit"},
		{name: "limit", path: "/v1/tasks?limit=1001", field: "limit"},
		{name: "state", path: "/v1/tasks?state=done", field: "state"},
		{name: "after", path: "/v1/tasks?after=x", field: "after"},
		{name: "pattern", path: "/v1/tasks?kind=coupon.*", field: "kind"},
		{name: "no kind", path: "/v1/tasks?kind=", field: "kind"},
		{name: "no state", path: "/v1/tasks?state=", field: "state"},
		{name: "no tag", path: "/v1/tasks?kind=a&tag=", field: "tag"},
		{name: "no limit", path: "/v1/tasks?limit=", field: "limit"},
		{name: "no place of tasks", path: "/v1/tasks?after=", field: "after"},
		{name: "place 0 of tasks", path: "/v1/tasks?after=0", field: "after"},
		{name: "no type of events", path: "/v1/events?type=", field: "type"},
		{name: "no kind of events", path: "/v1/events?kind=a&kind=", field: "kind"},
		{name: "no place of a stream", path: "/v1/events?after=", headers: []string{"Accept", "text/event-stream"},
			field: "after"},
		{name: "no wait", path: "/v1/tasks/a.b/1?wait=", field: "wait"},
		{name: "partition", path: "/v1/tasks?partition=" + strings.Repeat("x", 65), field: "partition"},
		{name: "tag", path: "/v1/tasks?tag=" + strings.Repeat("x", 256), field: "tag"},
		{name: "NUL in the tag", path: "/v1/tasks?tag=%00", field: "tag"},
		{name: "pattern and caller", path: "/v1/tasks?kind=*", field: "kind"},
		{name: "query", path: "/v1/tasks?a=%zz", field: "query"},
		{name: "query NUL", path: "/v1/kinds?after=%00", field: "after"},
		{name: "range", path: "/v1/stats?kind=a&from=2026-01-01T00:00:00Z", field: "from"},
		{name: "type of events", path: "/v1/events?type=done", field: "type"},
		{name: "kind of events", path: "/v1/events?kind=*", field: "kind"},
		{name: "beyond the end", path: "/v1/events?after=999999999", field: "after"},
		{name: "beyond every end", path: "/v1/events?after=9999999999999999999", field: "after"},
		{name: "cursor", path: "/v1/events?after=abc", field: "after"},
		{name: "Last-Event-ID beyond the end", path: "/v1/events",
			headers: []string{"Accept", "text/event-stream", "Last-Event-ID", "999999999"}, field: "Last-Event-ID"},
		{name: "Last-Event-ID", path: "/v1/events",
			headers: []string{"Accept", "text/event-stream", "Last-Event-ID", "-1"}, field: "Last-Event-ID"},
		{name: "long URL", path: "/v1/tasks?kind=" + strings.Repeat("a", 17_000), status: 413,
			code: "too_large"},
		{name: "version", path: "/v1/tasks/a.b/1/events?after=-1", field: "after"},
	} {
		method, path := "GET", test.path
		if path == "" {
			path = "/v1/tasks"
		}
		if test.path == "" || test.body != "" {
			method = "POST"
		}
		if test.status == 0 {
			test.status, test.code = http.StatusBadRequest, "invalid"
		}
		a := s.call(api.Admin, method, path, test.body, test.headers...)
		if a.status != test.status {
			t.Errorf("%s: got %d %s, want %d", test.name, a.status, a.body, test.status)
			continue
		}
		if test.code == "" {
			continue
		}
		if p := s.wantProblem(a, test.status, test.code); p.Field != test.field {
			t.Errorf("%s: got the field %q, want %q: %s", test.name, p.Field, test.field, p.Detail)
		}
	}
}

// Bytes that are not a request of HTTP, and giant headers, are answered with a status.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for name, test := range map[string]struct{ text, status string }{
		"giant header": {text: "GET /version HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 200_000) + "\r\n\r\n",
			status: "431"},
		"no HTTP":  {text: "hello\r\n\r\n", status: "400"},
		"no host":  {text: "GET /version HTTP/1.1\r\n\r\n", status: "400"},
		"bad path": {text: "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", status: "400"},
	} {
		if line := s.raw(test.text); !strings.Contains(line, test.status) {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// A body that does not come is 408, and one that stops while the request waits changes nothing.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.SetReadTimeout(100 * time.Millisecond) })
	head := "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " +
		s.tokens[api.Producer] + "\r\n"
	body := `{"kind":"a.b","biz_id":"1"}`
	if line := s.raw(head + "Content-Length: 100\r\n\r\n{"); !strings.Contains(line, "408") {
		t.Errorf("got %s", line)
	}
	// The server reads on while the request waits, longer than for a body.
	waits := fmt.Sprintf("Prefer: wait=1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if line := s.raw(head + waits); !strings.Contains(line, "202") {
		t.Errorf("got %s", line)
	}
}

// A compressed body counts by its size after decompression, and large answers are compressed.
func TestGzip(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	zip := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.String()
	}
	body := zip(`{"kind":"a.b","biz_id":"1","args":"` + strings.Repeat("x", 5000) + `"}`)
	a := s.call(api.Producer, "POST", "/v1/tasks", body, "Content-Encoding", "gzip")
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	bomb := s.call(api.Producer, "POST", "/v1/tasks", zip(strings.Repeat(" ", 100<<20)), "Content-Encoding", "gzip")
	s.wantProblem(bomb, http.StatusRequestEntityTooLarge, "too_large")
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/tasks/a.b/1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens[api.Viewer])
	r.Header.Set("Accept-Encoding", "gzip;q=1.0, br")
	response, err := s.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	unzipped, err := gzip.NewReader(response.Body)
	if err != nil {
		t.Fatalf("%v: %v", response.Header, err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(unzipped); err != nil || !strings.Contains(text.String(), "xxxx") ||
		response.ContentLength > 1000 {
		t.Errorf("%v, %d bytes, %d compressed", err, text.Len(), response.ContentLength)
	}
}

// After a part of the history was removed, as archiving does, its positions are refused with the cure. The beginning is
// then that of the rest.
func TestArchivedPositions(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i := range 5 {
		ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: ledger.BizID(fmt.Sprint(i))}, `{}`)
	}
	type page struct{ Items []ledger.Event }
	before := decode[page](s, s.call(api.Viewer, "GET", "/v1/events", ""), http.StatusOK)
	archived := before.Items[1].Position
	for _, sql := range []string{
		`alter table taskledger.event disable trigger user`,
		fmt.Sprintf(`delete from taskledger.event where position <= %d`, archived),
		`alter table taskledger.event enable trigger user`,
	} {
		if _, err := s.owner().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	position := strconv.Itoa(int(archived))
	for _, headers := range [][]string{{}, {"Accept", "text/event-stream"}} {
		p := s.wantProblem(s.call(api.Viewer, "GET", "/v1/events?after="+position, "", headers...), 400, "invalid")
		if p.Field != "after" || !strings.Contains(p.Detail, position) || !strings.Contains(p.Cure, "archived") {
			t.Errorf("got %+v", p)
		}
	}
	last := []string{"Accept", "text/event-stream", "Last-Event-ID", position}
	if p := s.wantProblem(s.call(api.Viewer, "GET", "/v1/events", "", last...), 400, "invalid"); p.Field != last[2] {
		t.Errorf("got %+v", p)
	}
	left := decode[page](s, s.call(api.Viewer, "GET", "/v1/events?after=0", ""), http.StatusOK)
	if len(left.Items) != 3 || left.Items[0].Position != before.Items[2].Position {
		t.Errorf("after the beginning: %+v", left)
	}
	operator := ledgertest.As(t, s.db, "operator")
	err := subscribers.Seek(t.Context(), operator, "mails", feed.After(archived), "", "")
	if !errors.Is(err, ledger.ErrUnknownPosition) {
		t.Errorf("a subscriber is moved to an archived position: %v", err)
	}
}

// Lists are read page by page, each item once.
func TestPages(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i := range 25 {
		ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: ledger.BizID(fmt.Sprint(i))}, `{}`)
	}
	type page struct {
		Items []ledger.Event
		Next  string
		More  bool
	}
	seen := map[ledger.Position]bool{}
	next := ""
	for {
		got := decode[page](s, s.call(api.Viewer, "GET", "/v1/events?limit=10&after="+next, ""), http.StatusOK)
		for _, e := range got.Items {
			if seen[e.Position] {
				t.Errorf("position %d twice", e.Position)
			}
			seen[e.Position] = true
		}
		if next = got.Next; !got.More {
			break
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d events, want 25", len(seen))
	}
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "25"}, `{}`)
	got := decode[page](s, s.call(api.Viewer, "GET", "/v1/events?after="+next, ""), http.StatusOK)
	if len(got.Items) != 1 || got.Items[0].BizID != "25" {
		t.Errorf("after the end: %+v", got)
	}
	foreign := serve(t, nil)
	foreign.wantProblem(foreign.call(api.Viewer, "GET", "/v1/events?after="+next, ""), http.StatusGone, "cursor_gone")
}

// A cursor of a moment at which hundreds of transactions wrote, whose ids it has, continues its list.
func TestCursorOfManyTransactions(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "1"}, `{}`)
	page := decode[struct{ Next string }](s, s.call(api.Viewer, "GET", "/v1/events", ""), http.StatusOK)
	text, err := base64.RawURLEncoding.DecodeString(page.Next)
	if err != nil {
		t.Fatal(err)
	}
	var next uint64
	if err := s.db.QueryRow(t.Context(), `select pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).
		Scan(&next); err != nil {
		t.Fatal(err)
	}
	var cursor map[string]any
	if err := json.Unmarshal(text, &cursor); err != nil {
		t.Fatal(err)
	}
	const transactions = 450
	first := next + 1_000_000_000 // ids of 10 digits, as those of an old database
	var unfinished []string
	for i := range uint64(transactions) {
		unfinished = append(unfinished, strconv.FormatUint(first+i, 10))
	}
	seen := fmt.Sprintf("%d:%d:%s", first, first+transactions, strings.Join(unfinished, ","))
	edge := map[string]any{"snapshot": seen, "top": 0, "bound": strconv.FormatUint(first+transactions, 10)}
	cursor["p"] = map[string]any{"seen": edge, "until": edge}
	if text, err = json.Marshal(cursor); err != nil {
		t.Fatal(err)
	}
	long := base64.RawURLEncoding.EncodeToString(text)
	a := s.call(api.Viewer, "GET", "/v1/events?after="+long, "")
	if a.status != http.StatusOK {
		t.Errorf("a cursor of %d bytes: %d %s", len(long), a.status, a.body)
	}
}
