package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
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

// addLargeTasks enqueues tasks whose args have 200 kB.
func (s *server) addLargeTasks(n int) {
	args := `"` + strings.Repeat("x", 200_000) + `"`
	for i := range n {
		ledgertest.Enqueue(s.t, s.db, ledger.Key{Kind: "a.b", BizID: ledger.BizID(fmt.Sprint(i))}, args)
	}
}

// Clients that ask for large events of the past and never read cost the memory of few pages, are cut off, and leave the
// others in peace.
func TestClientsThatNeverRead(t *testing.T) {
	s := serve(t, func(c *api.Config) { c.SetWriteTimeout(3 * time.Second) })
	s.addLargeTasks(100)
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	before, most := live[0].Value.Uint64(), uint64(0)
	for i := range 150 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		target := "/v1/events?after=0 HTTP/1.1\r\nAccept: text/event-stream"
		if i%3 == 0 {
			target = "/v1/events?limit=1000 HTTP/1.1"
		}
		if _, err := fmt.Fprintf(conn, "GET %s\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", target,
			s.tokens[api.Viewer]); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitWaitingAtLeast(1)
	other := s.stream("?after=0", "")
	for range 100 {
		other.want(`"kind":"a.b"`)
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		metrics.Read(live)
		most = max(most, live[0].Value.Uint64())
		if requests, _ := s.handler.Waiting(); requests == 1 { // the other one
			break
		}
		if time.Since(begun) > ioTimeout {
			t.Fatal("clients that do not read are not cut off")
		}
	}
	t.Logf("%d MiB more in use", (most-before)>>20)
	if most > before+(200<<20) {
		t.Errorf("%d MiB more were in use", (most-before)>>20)
	}
}

// countingConn counts the bytes that it has read.
type countingConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// A page of few events, or of few bytes, does not read a thousand large events from the database.
func TestPageOfLargeEvents(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, databaseRoles...)
	config := pool.Config()
	dial, n := config.ConnConfig.DialFunc, new(atomic.Int64)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return countingConn{conn, n}, err
	}
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := serveOn(t, db, nil)
	s.addLargeTasks(200)
	for limit, most := range map[int]int64{1: 5 << 20, 1000: 25 << 20} {
		before := n.Load()
		page := decode[struct {
			Items []ledger.Event
			More  bool
		}](s, s.call(api.Viewer, "GET", fmt.Sprintf("/v1/events?limit=%d", limit), ""), http.StatusOK)
		read := n.Load() - before
		t.Logf("%d events of a page of %d: %d MiB", len(page.Items), limit, read>>20)
		if len(page.Items) == 0 || len(page.Items) > limit || !page.More || read > most {
			t.Errorf("%d events of a page of %d: %d MiB", len(page.Items), limit, read>>20)
		}
	}
}
