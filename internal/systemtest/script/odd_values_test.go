package script_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/webhook"
)

// oddArgs and oddMetas are what a producer may store, and readers may stumble over.
var (
	oddArgs = []string{
		`null`, `{}`, `[]`, `""`, `"AP8="`, `"A"`, `true`, `-0`, `1e400000`, `123456789012345678901234567890`,
		`"\u0000"`, `"\ud800"`, `{"\u0000":1,"\ud800":"\udfff"}`, `{"a":1,"a":2}`, ` [1 , 2 ] `,
		strings.Repeat("[", 500) + strings.Repeat("]", 500), `"` + strings.Repeat("x", 200_000) + `"`,
		`"<script>alert(1)</script>\u202e\u001b[2J"`, "\"\u202e\ufeff\U0010ffff\"",
		`{"error":{"message":"\u0000","type":5,"fingerprint":[]},"reason":{"x":1e400000},"result":"\u0000",
		  "schedule":5,"action":1,"detail":"\ud800","started_at":"x","ran_ms":1e400000,"of":1,"due_at":5,"worker":5}`,
		`{"error":"\u0000","reason":"\u0000"}`, `{"Error":{"Message":"x"},"REASON":"y"}`, `{"card_number":["\u0000"]}`,
	}
	oddMetas = []string{
		`null`, `{}`, `{"tags":5,"tags":["a"]}`, `{"tags":["a"],"tags":null}`, `{"encoding":1,"encoding":""}`,
		`{"Tags":5,"ENCODING":"base64","Encoding":5,"Traceparent":[]}`, `{"tags":[null,"",null]}`,
		`{"tags":["\u0001\u001b","<b>","a,b","\ud83d\ude00","` + strings.Repeat("t", 15_000) + `"]}`,
		`{"tags":["a","a","A"]}`, `{"x":1e400000}`, `{"tags":["t"],"x":{"y":[1e400000,"z"]}}`,
		`{"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`,
		`{"causation":"not an id"}`, `{"causation":"a/b/1@x"}`, `{"causation":"odd/1/99999999999999999999@1"}`,
		`{"causation":"odd/1/1@99999999999999999999999"}`, `{"causation":""}`, `{"causation":null}`,
		`{"causation":"` + strings.Repeat("c", 10_000) + `"}`, `{"traceparent":"zz","tracestate":"\u0001,,=,=="}`,
		`{"reason":5,"replay":"x","schedule":{},"login":1,"as":5,"audit":1,"firing":"x","uuid":5,"metadata":5}`,
		`{"retry":{"attempts":1e2}}`, `{"retry":null,"tags":null,"encoding":null,"traceparent":null}`,
		`{"run_At":5,"Start_by":"x","AFTER":[],"Retry":5}`, `{"":1,"a.b":2,"__proto__":{"x":1}}`,
		`{"encoding":"base64"}`, `{"encoding":"gzip"}`,
	}
)

// cmdOddValues enqueues tasks with odd values in each way. A way may refuse a value; what it accepts must be readable.
func cmdOddValues(ts *testscript.TestScript, _ bool, _ []string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	defer pool.Close()
	const first = `select from taskledger.enqueue('odd.first', '1', '"\u0000"')`
	const call = `select from taskledger.enqueue($1, $2, $3, meta => $4, after => $5)`
	const many = `select from taskledger.enqueue_many(
		('[{"kind":"' || $1 || '","biz_id":"' || $2 || '","args":' || $3 || ',"meta":' || $4 || '}]')::json)`
	_, err = pool.Exec(ctx, first)
	ts.Check(err)
	accepted := map[ledger.Kind]int{}
	enqueue := func(id, args, meta string) {
		_, err := pool.Exec(ctx, call, "odd.sql", id, args, meta, nil)
		countAccepted(accepted, "odd.sql", err)
		after := `{"keys":[{"kind":"odd.first","biz_id":"1"}]}`
		_, err = pool.Exec(ctx, call, "odd.waiting", id, args, meta, after)
		countAccepted(accepted, "odd.waiting", err)
		_, err = pool.Exec(ctx, many, "odd.many", id, args, meta)
		countAccepted(accepted, "odd.many", err)
		parsed, err := ledger.ParseMeta([]byte(meta))
		if err == nil {
			k := ledger.Key{Kind: "odd.go", BizID: ledger.BizID(id)}
			_, err = ledger.Enqueue(ctx, pool, k, []byte(args), &ledger.EnqueueOptions{Meta: parsed})
		}
		countAccepted(accepted, "odd.go", err)
	}
	for i, args := range oddArgs {
		enqueue(fmt.Sprintf("args %d/%%2F", i), args, `{}`)
	}
	for i, meta := range oddMetas {
		enqueue(fmt.Sprintf("meta %d?#'", i), `"AP8="`, meta)
	}
	for _, kind := range []ledger.Kind{"odd.sql", "odd.waiting", "odd.many", "odd.go"} {
		if n := accepted[kind]; n < len(oddArgs)+len(oddMetas)/2 {
			ts.Fatalf("%s: only %d were accepted", kind, n)
		}
	}
}

func countAccepted(accepted map[ledger.Kind]int, kind ledger.Kind, err error) {
	if err == nil {
		accepted[kind]++
	}
}

// cmdReadAll ADDRESS reads each task by each page and call of the HTTP server, and all events as a stream.
func cmdReadAll(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pool, err := pgxpool.New(ctx, ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	defer pool.Close()
	rows, err := pool.Query(ctx, "select kind, biz_id from taskledger.event where version = 1 and kind ^@ 'odd.'")
	ts.Check(err)
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Kind, BizID string }])
	ts.Check(err)
	for _, k := range keys {
		path := "/v1/tasks/" + url.PathEscape(k.Kind) + "/" + url.PathEscape(k.BizID)
		query := url.Values{"kind": {k.Kind}, "biz_id": {k.BizID}}.Encode()
		for _, target := range []string{path, path + "/events", "/task?" + query, "/task?version=1&" + query} {
			answer, err := http.Get("http://" + args[0] + target)
			ts.Check(err)
			body, err := io.ReadAll(answer.Body)
			ts.Check(err)
			ts.Check(answer.Body.Close())
			if answer.StatusCode != http.StatusOK || strings.HasPrefix(target, "/v1") && !json.Valid(body) {
				ts.Fatalf("%s: %s %.1000s", target, answer.Status, body)
			}
		}
	}
	following, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	request, err := http.NewRequestWithContext(following, http.MethodGet, "http://"+args[0]+"/v1/events?after=0", nil)
	ts.Check(err)
	request.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(request)
	ts.Check(err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	read := 0
	for read < len(keys) && lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && strings.Contains(data, `"odd.`) {
			read++
			if !json.Valid([]byte(data)) {
				ts.Fatalf("not JSON: %s", data)
			}
		}
	}
	ts.Check(lines.Err())
}

// cmdReceiver FILE starts a receiver of webhooks, and writes the file of its settings. With cmdReceiver wait it waits
// until it has got an event of each task.
func cmdReceiver(ts *testscript.TestScript, _ bool, args []string) {
	if args[0] == "wait" {
		waitForDeliveries(ts)
		return
	}
	got := &deliveries{ids: map[string]bool{}}
	server := httptest.NewServer(got)
	ts.Defer(server.Close)
	receivers.Store(ts.Getenv("WORK"), got)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	ts.Setenv("ODD_HOOK", "whsec_"+base64.StdEncoding.EncodeToString(secret))
	settings := fmt.Sprintf("receivers: [{name: odd, url: %q, secret_env: ODD_HOOK, kinds: [odd.first, odd.sql,\n"+
		"odd.waiting, odd.many, odd.go], from_beginning: true,\n"+
		"types: [enqueued, scheduled], allow: [127.0.0.0/8]}]\n", server.URL)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(settings), 0o600))
}

// receivers has the deliveries of each script.
var receivers sync.Map

// deliveries is a receiver of webhooks.
type deliveries struct {
	mu  sync.Mutex
	ids map[string]bool // of the events that it has got as JSON
}

func (d *deliveries) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !json.Valid(body) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids[r.Header.Get(webhook.HeaderID)] = true
}

func waitForDeliveries(ts *testscript.TestScript) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	defer conn.Close(ctx)
	var want int
	const query = "select count(*) from taskledger.event where version = 1 and kind ^@ 'odd.'"
	ts.Check(conn.QueryRow(ctx, query).Scan(&want))
	value, _ := receivers.Load(ts.Getenv("WORK"))
	d := value.(*deliveries)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		d.mu.Lock()
		got := len(d.ids)
		d.mu.Unlock()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("got events of %d tasks, want %d", got, want)
		}
	}
}
