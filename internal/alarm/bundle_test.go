package alarm_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
)

// patience is the timeout of conditions that normally hold within milliseconds.
const patience = time.Minute

// bundle is a test with a database of its own and a projector.
type bundle struct {
	t             testing.TB
	db            *pgxpool.Pool
	stopProjector func()
}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{t: t, db: ledgertest.Pool(t, ledgertest.App, "relay", "operator")}
	b.startProjector()
	return b
}

func (b *bundle) startProjector() {
	b.t.Helper()
	p, err := projector.New(projector.Config{DB: b.db})
	if err != nil {
		b.t.Fatal(err)
	}
	b.stopProjector = b.background(p.Run)
}

// startRelay starts a NATS server and a relay.
func (b *bundle) startRelay() {
	b.t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: b.t.TempDir()})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			b.t.Error(err)
		}
	})
	nc, err := outbox.Connect(server.URL())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	r, err := outbox.New(outbox.Config{DB: b.db, NATS: nc})
	if err != nil {
		b.t.Fatal(err)
	}
	b.background(r.Run)
}

// background runs a service until stop is called or the test ends.
func (b *bundle) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) await(what string, done func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// awaitProjected waits until all events are projected.
func (b *bundle) awaitProjected() {
	b.t.Helper()
	b.await("the projection", func() bool {
		lag, err := projection.ReadLag(context.Background(), b.db)
		if err != nil {
			b.t.Fatal(err)
		}
		return lag.Events == 0
	})
}

// die creates n tasks of a kind that are dead of one error.
func (b *bundle) die(kind, prefix string, n int, message string) {
	b.t.Helper()
	b.exec(`
		with task as materialized (select $2 || g as biz_id from generate_series(1, $3::integer) g)
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data)
		select v, 0, taskledger.shard_of(t.biz_id),
		       case v when 1 then 'enqueued' else 'buried' end::taskledger.event_type, $1, t.biz_id,
		       case v when 2 then json_build_object('reason', 'permanent', 'error', json_build_object(
		         'message', $4::text, 'fingerprint', left(md5($4::text), 16))) end
		  from task t cross join generate_series(1, 2) v
		 order by t.biz_id, v`, kind, prefix, n, message)
	b.awaitProjected()
}

// config returns the configuration of a watcher that reports and retries without delay.
func (b *bundle) config(receivers ...alarm.Receiver) alarm.Config {
	c := alarm.Config{
		DB: b.db, Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
		File: alarm.File{Rules: alarm.Rules{Gather: -1, Every: 1}, Receivers: receivers},
	}
	c.SetInterval(10 * time.Millisecond)
	c.SetRetry(ledger.RetryPolicy{Ladder: []time.Duration{time.Millisecond}, Attempts: 1000})
	return c
}

func (b *bundle) watcher(c alarm.Config) *alarm.Watcher {
	b.t.Helper()
	w, err := alarm.New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

func (b *bundle) pass(w *alarm.Watcher) {
	b.t.Helper()
	if err := w.Pass(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// alarms returns all alarms, the newest first, by receiver.
func (b *bundle) alarms() []alarm.Alarm {
	b.t.Helper()
	found, _, err := alarm.ReadAlarms(context.Background(), b.db, alarm.MaxList)
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// history returns the types of a task's events.
func (b *bundle) history(k ledger.Key) (types []ledger.EventType) {
	b.t.Helper()
	events, err := ledger.History(context.Background(), b.db, k)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range events {
		types = append(types, e.Type)
	}
	return types
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// webhookServer is an HTTP server that gets alarms.
type webhookServer struct {
	t      testing.TB
	server *httptest.Server

	mu       sync.Mutex
	status   int
	requests []request
}

type request struct {
	header http.Header
	body   []byte
}

func newWebhookServer(t testing.TB) *webhookServer {
	h := &webhookServer{t: t, status: http.StatusNoContent}
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.requests = append(h.requests, request{header: r.Header.Clone(), body: body})
		w.WriteHeader(h.status)
		fmt.Fprint(w, "out of order\x1b[2J")
	}))
	t.Cleanup(h.server.Close)
	return h
}

// answer sets the status of the responses.
func (h *webhookServer) answer(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// got returns the requests so far.
func (h *webhookServer) got() []request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]request(nil), h.requests...)
}

// receiver returns the server as a receiver.
func (h *webhookServer) receiver(name string) alarm.Receiver {
	return alarm.Receiver{Name: name, Webhook: &webhooks.Endpoint{
		URL: h.server.URL + "/?token=hush", SecretFile: file(h.t, "secret", secret+"\n"),
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}}
}

// file writes a file for the test.
func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
