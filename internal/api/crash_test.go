package api_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// While PostgreSQL is away, requests are 503 with Retry-After. After its crash a request that waits is answered, and a
// stream goes on or has ended; a resumed one misses nothing.
func TestDatabaseCrash(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	db, err := pgxpool.New(t.Context(), server.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s := serveOn(t, db, nil)
	k := ledger.Key{Kind: "a.b", BizID: "1"}
	ledgertest.Enqueue(t, db, k, `{}`)
	open := s.stream("?after=0", "")
	last := open.want(`"version":1`)
	polled := make(chan answer, 1)
	go func() {
		polled <- s.call(api.Viewer, "GET", client.Path(k)+"?wait=60", "", "If-None-Match", `"1"`)
	}()
	s.awaitWaiting(2)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	var away answer
	for begun := time.Now(); away.status != http.StatusServiceUnavailable; { // backends may outlive the postmaster
		away = s.call(api.Producer, "POST", "/v1/tasks", `{"kind":"a.b","biz_id":"2"}`)
		if time.Since(begun) > ioTimeout {
			break
		}
	}
	if s.wantProblem(away, http.StatusServiceUnavailable, "unavailable"); away.header.Get("Retry-After") == "" {
		t.Errorf("headers %v", away.header)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); db.Ping(t.Context()) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > ioTimeout {
			t.Fatal("the database does not come back")
		}
	}
	ledgertest.Append(t, db, k, ledger.EventCancelled)
	if a := <-polled; a.status != http.StatusOK || a.header.Get("ETag") != `"2"` {
		t.Errorf("the request that waited: %d %s", a.status, a.body)
	}
	// A stream ends if the database may have lost commits that it has shown, which the feed of a service would notice.
	_, data, ok := open.next()
	for ok && strings.Contains(data, `"biz_id":"2"`) { // enqueued by a backend that outlived the postmaster
		_, data, ok = open.next()
	}
	if ok && !strings.Contains(data, `"version":2`) {
		t.Errorf("the stream goes on with %s", data)
	}
	resumed := s.stream("", strconv.Itoa(int(last)))
	defer resumed.close()
	for {
		if _, data, ok := resumed.next(); !ok || strings.Contains(data, `"version":2`) {
			if !ok {
				t.Error("the resumed stream misses an event")
			}
			break
		}
	}
}
