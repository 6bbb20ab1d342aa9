package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// reader is a client of a stream.
type reader struct {
	s     *server
	lines *bufio.Scanner
	close func()
}

// stream opens a stream; parameters are those of the URL, after is Last-Event-ID.
func (s *server) stream(parameters, after string) *reader {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), ioTimeout)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events"+parameters, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens[api.Viewer])
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Last-Event-ID", after) // an empty one counts as not sent
	response, err := s.http.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("got %d %v", response.StatusCode, response.Header)
	}
	end := func() {
		cancel()
		response.Body.Close()
	}
	if after == "" {
		s.t.Cleanup(end)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return &reader{s, lines, end}
}

// next returns the id and the data of the next event, and false at the end of the stream.
func (r *reader) next() (id ledger.Position, data string, ok bool) {
	for r.lines.Scan() {
		name, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch name {
		case "id":
			position, _, _ := strings.Cut(value, "-")
			n, err := strconv.ParseInt(position, 10, 64)
			if err != nil {
				r.s.t.Errorf("id %q: %v", value, err)
			}
			id = ledger.Position(n)
		case "data":
			return id, value, true
		}
	}
	return 0, "", false
}

func (r *reader) want(part string) ledger.Position {
	r.s.t.Helper()
	id, data, ok := r.next()
	if !ok || !strings.Contains(data, part) {
		r.s.t.Fatalf("got %q (%v), want %s", data, ok, part)
	}
	return id
}

// A stream begins now, or after a position, and has the events that the caller wants.
func TestStream(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	add := func(kind ledger.Kind, id string) ledger.Key {
		k := ledger.Key{Kind: kind, BizID: ledger.BizID(id)}
		ledgertest.Enqueue(t, s.db, k, `{}`)
		return k
	}
	add("a.b", "before")
	now := s.stream("", "")
	chosen := s.stream("?kind=c.*&type=cancelled", "")
	whole := s.stream("?after=0", "")
	whole.want("before")
	first := add("a.b", "1")
	second := add("c.d", "2")
	ledgertest.Append(t, s.owner(), first, ledger.EventCancelled)
	ledgertest.Append(t, s.owner(), second, ledger.EventCancelled)
	for _, r := range []*reader{now, whole} {
		r.want(`"biz_id":"1","version":1`)
		r.want(`"biz_id":"2","version":1`)
		r.want(`"biz_id":"1","version":2`)
		r.want(`"biz_id":"2","version":2`)
	}
	last := chosen.want(`"biz_id":"2","version":2`)
	add("c.e", "3")
	resumed := s.stream("", strconv.Itoa(int(last)))
	defer resumed.close()
	for {
		if _, data, ok := resumed.next(); !ok || strings.Contains(data, `"biz_id":"3"`) {
			if !ok {
				t.Error("the resumed stream has ended")
			}
			break
		}
	}
}

// A client that is cut off again and again, and resumes each time after the last position it got, misses no event,
// although transactions commit out of the order of positions.
func TestResumedStreamMissesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	const writers, each = 8, 40
	var group sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for w := range writers {
		group.Go(func() {
			for i := range each {
				tx, err := s.db.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				k := ledger.Key{Kind: "a.b", BizID: ledger.BizID(fmt.Sprint(w, ".", i))}
				if _, err = ledger.Enqueue(t.Context(), tx, k, nil, nil); err == nil {
					time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
					err = tx.Commit(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	owner := s.owner() // a service, which records moments
	group.Go(func() {
		f, err := feed.Open(ctx, owner, "projector", nil)
		for err == nil {
			var page feed.Page
			if page, err = f.Next(ctx); err == nil {
				err = page.Advance(ctx, nil, nil)
			}
		}
		if ctx.Err() == nil {
			t.Error(err)
		}
	})
	seen := map[string]bool{}
	after, connections := "0", 0
	for ; len(seen) < writers*each && !t.Failed(); connections++ {
		r := s.stream("", after)
		for news := 1 + rand.IntN(20); news > 0 && len(seen) < writers*each; {
			id, data, ok := r.next()
			if !ok {
				break
			}
			var e ledger.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatal(err)
			}
			if !seen[string(e.BizID)] {
				news--
			}
			seen[string(e.BizID)] = true
			after = strconv.Itoa(int(id))
		}
		r.close()
	}
	stop()
	group.Wait()
	t.Logf("%d connections", connections)
}

// A client that does not read is cut off. The others get every event meanwhile, and what waits for it is bounded.
func TestStoppedReader(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.SetStreamBytes(64 << 10); c.SetWriteTimeout(time.Second) })
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"+
		"Authorization: Bearer %s\r\n\r\n", s.tokens[api.Viewer]); err != nil {
		t.Fatal(err)
	}
	s.awaitWaiting(1)
	reading := s.stream("", "")
	s.awaitWaiting(2)
	args := `"` + strings.Repeat("x", 200_000) + `"`
	begun, isCutOff := time.Now(), false
	for i := 0; !isCutOff; i++ {
		id := fmt.Sprint("id-", i)
		ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: ledger.BizID(id)}, args)
		if _, data, ok := reading.next(); !ok || !strings.Contains(data, id) {
			t.Fatalf("the other client got %.100q (%v)", data, ok)
		}
		requests, _ := s.handler.Waiting()
		isCutOff = requests == 1
		if time.Since(begun) > ioTimeout {
			t.Fatal("the client that does not read is not cut off")
		}
	}
}

// An empty Last-Event-ID is that of a client that has received no id: the stream begins after the parameter after.
func TestStreamWithAnEmptyLastEventID(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "1"}, `{}`)
	if id, data, ok := s.stream("?after=0", "").next(); !ok || id != 1 {
		t.Errorf("got the event %d %q (%v), want that at position 1", id, data, ok)
	}
}

// A restore, or a fail-over that loses commits, gives the position of the last event that a client has read to another
// one. The client gets a problem when it resumes, and no stream that lacks events.
func TestStreamIsNotResumedAfterALostEvent(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "kept"}, `{}`)
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "lost"}, `{}`)
	ids := func() (ids []string) {
		for len(ids) < 3 { // a stream ends when the server finds that the database was restored
			ids = nil
			r := s.stream("?after=0", "")
			for len(ids) < 3 && r.lines.Scan() { // the first one is of the place at which the stream begins
				if id, ok := strings.CutPrefix(r.lines.Text(), "id: "); ok {
					ids = append(ids, id)
				}
			}
			r.close()
		}
		return ids
	}
	read := ids()
	ledgertest.ExecAsOwner(t, s.db, `
		set session_replication_role = replica;
		delete from taskledger.event where biz_id = 'lost';
		select setval('taskledger.event_position_seq', (select max(position) from taskledger.event));
		delete from taskledger.incarnation;
		select taskledger_internal.begin_incarnation()`)
	accept := []string{"Accept", "text/event-stream", "Last-Event-ID", read[2]}
	s.wantProblem(s.call(api.Viewer, "GET", "/v1/events", "", accept...), http.StatusBadRequest, "invalid")
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "new"}, `{}`)
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "newer"}, `{}`)
	again := ids()
	position := func(id string) string { p, _, _ := strings.Cut(id, "-"); return p }
	if position(again[2]) != position(read[2]) || again[2] == read[2] || again[1] != read[1] {
		t.Fatalf("ids %v, and then %v: want the same position for another event", read, again)
	}
	p := s.wantProblem(s.call(api.Viewer, "GET", "/v1/events", "", accept...), http.StatusGone, "cursor_gone")
	if !strings.Contains(p.Detail, position(read[2])) {
		t.Errorf("got %+v", p)
	}
	for _, id := range []string{again[1], position(again[1])} {
		r := s.stream("", id)
		for data, ok := "", true; ok && !strings.Contains(data, `"biz_id":"new"`); { // id's own may be repeated
			if _, data, ok = r.next(); !ok {
				t.Errorf("after %s the stream ended without the new event", id)
			}
		}
		r.close()
	}
}
