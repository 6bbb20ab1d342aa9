package probe_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/probe"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// held is a condition.
type held struct {
	Name     string
	Critical bool
}

func (h held) IsCritical() bool { return h.Critical }

// readiness is a body of /readyz.
type readiness struct {
	Ready       bool
	Error, Cure string
	Degraded    []held
}

// get returns the answer of /readyz.
func get(t *testing.T, h http.Handler) (status int, r readiness) {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if err := json.Unmarshal(answer.Body.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	return answer.Code, r
}

func newHandler(t *testing.T, c probe.Config) http.Handler {
	t.Helper()
	h, err := probe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A worker is ready while its database and NATS answer.
func TestWorker(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "worker")
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	h := newHandler(t, probe.Config{DB: db, NATS: nc})
	if status, r := get(t, h); status != http.StatusOK || !r.Ready {
		t.Errorf("%d %+v", status, r)
	}
	lost := nc.StatusChanged(nats.RECONNECTING)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	<-lost
	// Another handler, since the first one keeps its result for a moment.
	status, r := get(t, newHandler(t, probe.Config{DB: db, NATS: nc}))
	if status != http.StatusServiceUnavailable || r.Error != "NATS is not connected" || r.Cure == "" {
		t.Errorf("%d %+v", status, r)
	}
	db.Close()
	status, r = get(t, newHandler(t, probe.Config{DB: db}))
	if status != http.StatusServiceUnavailable || r.Error != "the database does not answer" || r.Cure == "" {
		t.Errorf("%d %+v", status, r)
	}
}

// A critical condition makes the process not ready. Another one does not.
func TestReport(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "worker")
	for _, isCritical := range []bool{false, true} {
		h := newHandler(t, probe.Config{DB: db, Report: func(context.Context) ([]probe.Condition, error) {
			return []probe.Condition{held{Name: "a"}, held{Name: "b", Critical: isCritical}}, nil
		}})
		status, r := get(t, h)
		if len(r.Degraded) != 2 || r.Degraded[1].Name != "b" || r.Ready != (status == http.StatusOK) ||
			r.Ready == isCritical {
			t.Errorf("critical %t: %d %+v", isCritical, status, r)
		}
	}
	_, r := get(t, newHandler(t, probe.Config{DB: db, Report: func(context.Context) ([]probe.Condition, error) {
		return nil, ledger.ErrNotMigrated
	}}))
	if r.Ready || r.Cure != "run: taskledger migrate up" {
		t.Errorf("%+v", r)
	}
}

// A report that takes too long does not make the process not ready: the critical conditions are read alone.
func TestSlowReport(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "reader")
	slow := func(ctx context.Context) ([]probe.Condition, error) {
		<-ctx.Done() // as with very many kinds
		return nil, ctx.Err()
	}
	var holds []probe.Condition
	critical := func(ctx context.Context) ([]probe.Condition, error) { return holds, ctx.Err() }
	status, r := get(t, newHandler(t, probe.Config{DB: db, Report: slow, ReportCritical: critical}))
	if status != http.StatusOK || !r.Ready || r.Error == "" || r.Cure == "" {
		t.Errorf("%d %+v", status, r)
	}
	holds = []probe.Condition{held{Name: "relay_stopped", Critical: true}}
	status, r = get(t, newHandler(t, probe.Config{DB: db, Report: slow, ReportCritical: critical}))
	if r.Ready || status != http.StatusServiceUnavailable || len(r.Degraded) != 1 {
		t.Errorf("%d %+v", status, r)
	}
	if status, r := get(t, newHandler(t, probe.Config{DB: db, Report: slow})); r.Ready || status == http.StatusOK {
		t.Errorf("%d %+v", status, r)
	}
}

// Many requests cost one examination a second, also if their clients have ended them.
func TestRequestsShareAResult(t *testing.T) {
	t.Parallel()
	reports := 0
	h := newHandler(t, probe.Config{DB: ledgertest.Pool(t, "worker"),
		Report: func(ctx context.Context) ([]probe.Condition, error) {
			reports++
			return nil, ctx.Err()
		}})
	ended, end := context.WithCancel(t.Context())
	end()
	begun := time.Now()
	for range 100 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ended, http.MethodGet, "/readyz", nil))
	}
	if most := 1 + int(time.Since(begun)/probe.MaxAge); reports > most {
		t.Errorf("100 requests in %s: %d examinations, want at most %d", time.Since(begun), reports, most)
	}
	if _, r := get(t, h); !r.Ready {
		t.Errorf("%+v", r)
	}
}
