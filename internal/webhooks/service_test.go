package webhooks_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/webhook"
)

const secretText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiver is an HTTP server that verifies requests and stores them.
type receiver struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	bodies   []string       // of requests that it has accepted, without the timestamp
	ids      map[string]int // accepted requests by webhook-id
	failures int            // further requests that it refuses, with status
	status   int            // default: 503
	refusals int            // requests that it has refused
	open     int
	most     int // requests at a time
	pause    time.Duration
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, ids: map[string]int{}}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	text, err := io.ReadAll(request.Body)
	if err != nil {
		r.t.Error(err)
	}
	id, err := webhook.Verify(request.Header, text, secretText)
	if err != nil {
		r.t.Errorf("%s: %v", text, err)
	}
	var body struct {
		Type string
		Data struct {
			Kind  string
			BizID string `json:"biz_id"`
			Data  json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &body); err != nil || body.Type == "" {
		r.t.Errorf("body %s: %v", text, err)
	}
	r.mu.Lock()
	r.open++
	r.most = max(r.most, r.open)
	pause, isRefused := r.pause, r.failures > 0
	if isRefused {
		r.failures--
		r.refusals++
	} else {
		r.ids[id]++
		r.bodies = append(r.bodies, fmt.Sprint(body.Type, " ", body.Data.BizID, " ", string(body.Data.Data)))
	}
	r.mu.Unlock()
	time.Sleep(pause)
	r.mu.Lock()
	r.open--
	r.mu.Unlock()
	if isRefused {
		w.WriteHeader(cmp.Or(r.status, http.StatusServiceUnavailable))
	}
}

// refuse has the receiver refuse so many further requests.
func (r *receiver) refuse(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = n
}

func (r *receiver) refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusals
}

func (r *receiver) accepted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.bodies))
}

// webhookIDs returns how many different webhook-ids were accepted.
func (r *receiver) webhookIDs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids)
}

// hooks is a ledger with services, and a service of webhooks.
type hooks struct {
	*servicetest.Bundle
	db  *pgxpool.Pool // as serve webhooks
	log *logText

	archive feed.Archive // of start
}

// logText is a log in memory.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// has reports whether a line has all the words.
func (l *logText) has(words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}

func newHooks(t *testing.T) *hooks {
	t.Helper()
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	b.Schedule()
	return &hooks{Bundle: b, db: ledgertest.As(t, b.DB, ledgertest.App, "subscriber"), log: &logText{}}
}

// secretFile returns a file that contains secretText.
func secretFile(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(secretText+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// While a receiver changes its secret, each request has a signature by each, so that it may verify with either.
func TestSecretsAreRotated(t *testing.T) {
	h := newHooks(t)
	const old = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte(secretText+"\n"+old+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	received := make(chan http.Header, 1)
	bodies := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		received <- r.Header
		bodies <- body
	}))
	t.Cleanup(server.Close)
	ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: "1"}, `{}`)
	secured := endpoint(server.URL)
	secured.SecretFile = file
	h.start(webhooks.Receiver{Name: "shop", Endpoint: secured})
	header, body := <-received, <-bodies
	for _, secrets := range []string{secretText, old} {
		if _, err := webhook.Verify(header, body, secrets); err != nil {
			t.Error(err)
		}
	}
}

// start starts a service. It returns a function that stops it.
func (h *hooks) start(receivers ...webhooks.Receiver) (stop func()) {
	h.T.Helper()
	for i := range receivers {
		if receivers[i].SecretFile == "" {
			receivers[i].SecretFile = secretFile(h.T)
		}
		receivers[i].FromBeginning = true
	}
	s, err := webhooks.New(webhooks.Config{DB: h.db, NATS: h.Connect(), File: webhooks.File{Receivers: receivers},
		Archive: h.archive,
		Logger:  slog.New(slog.NewTextHandler(io.MultiWriter(h.log, h.T.Output()), nil))})
	if err != nil {
		h.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	h.Start(func(end context.Context) error {
		defer close(ended)
		defer context.AfterFunc(end, cancel)()
		return s.Run(ctx)
	})
	return func() { cancel(); <-ended }
}

// endpoint returns an endpoint on this machine.
func endpoint(url string) webhooks.Endpoint {
	return webhooks.Endpoint{URL: url, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

func (h *hooks) deliveries(name string, state ledger.State) int {
	return servicetest.One[int](h, `
		select count(*)::integer from taskledger.event e
		 where e.kind = $1::text and taskledger.state_after(e.type)::text = $2::text
		   and not exists (select from taskledger.event n
		                    where n.kind = e.kind and n.biz_id = e.biz_id and n.version > e.version)`,
		string(webhooks.Kind(name)), string(state))
}

// A receiver gets each event of its kinds and types once, signed, also after failures, with at most so many requests at
// a time as it has slots. Moved back it gets them again with the same id. Deliveries have no deliveries.
func TestReceiverGetsEachEvent(t *testing.T) {
	h := newHooks(t)
	all, some := newReceiver(t), newReceiver(t)
	some.failures, some.pause = 3, 5*time.Millisecond
	const tasks = 12
	for i := range tasks {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(i))}
		ledgertest.Enqueue(t, h.As(ledgertest.App), key, fmt.Sprintf(`{"n":%d}`, i))
		ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "mail.send", BizID: key.BizID}, `{}`)
	}
	quick := &ledger.RetryPolicy{Ladder: []time.Duration{10 * time.Millisecond}, Attempts: 10}
	h.start(webhooks.Receiver{Name: "all", Endpoint: endpoint(all.server.URL)},
		webhooks.Receiver{Name: "some", Endpoint: endpoint(some.server.URL + "/token"), Slots: 2, Retry: quick,
			Kinds: []ledger.Kind{"coupon.send"}, Types: []ledger.EventType{ledger.EventEnqueued}})
	h.Await("all events are delivered", func() bool {
		return len(all.accepted()) >= 2*tasks && len(some.accepted()) >= tasks
	})
	var want []string
	for i := range tasks {
		want = append(want, fmt.Sprintf(`coupon.send.enqueued %d {"n":%d}`, i, i))
	}
	slices.Sort(want)
	if got := some.accepted(); !slices.Equal(got, want) {
		t.Errorf("received %v, want %v", got, want)
	}
	if some.most > 2 {
		t.Errorf("%d requests at a time, want at most 2", some.most)
	}
	h.Await("the deliveries have succeeded", func() bool {
		return h.deliveries("some", ledger.StateSucceeded) == tasks &&
			h.deliveries("all", ledger.StateSucceeded) == 2*tasks
	})
	if n := len(all.accepted()); n != 2*tasks {
		t.Errorf("%d events are delivered to the receiver of all kinds, want %d", n, 2*tasks)
	}
	err := subscribers.Seek(t.Context(), h.As("operator"), webhooks.Subscriber("some"), feed.Start{}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: "last"}, `{}`)
	h.Await("the events are delivered again", func() bool { return len(some.accepted()) == 2*tasks+1 })
	if len(some.ids) != tasks+1 {
		t.Errorf("%d ids, want %d: an event has the same id again", len(some.ids), tasks+1)
	}
}

// A login that does not own a receiver's subscriber enqueues none of its deliveries. A task of another login with the
// key of a delivery, as the owner can insert one, stops no event.
func TestDeliveriesBelongToTheirSubscriber(t *testing.T) {
	h := newHooks(t)
	r := newReceiver(t)
	h.start(webhooks.Receiver{Name: "shop", Endpoint: endpoint(r.server.URL), Kinds: []ledger.Kind{"coupon.send"}})
	h.Await("the subscriber exists", func() bool {
		return servicetest.One[int](h, `select count(*)::integer from taskledger.subscribers`) == 1
	})
	// The keys and args of the deliveries of the next events.
	const squat = `
		insert into taskledger.event (version, attempt, shard, type, login_id, kind, biz_id, actor, data)
		select 1, 0, taskledger.shard_of(p.id), 'scheduled', taskledger_internal.login_id(),
		       'taskledger.webhook.shop', p.id,
		       'x', ('{"kind":"coupon.send","biz_id":"c","version":1,"position":' || p.id || '}')::json
		  from (select ((select last_value from taskledger.event_position_seq) + 30 + n)::text as id
		          from generate_series(1, 30) n) p`
	for _, roles := range [][]string{
		{"producer", "subscriber"}, // what docs/waiting.md gives to a program that enqueues and waits
		{"relay"},
		{"operator"},
	} {
		_, err := ledgertest.As(t, h.DB, roles...).Exec(t.Context(), squat)
		if !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%v: %v, want insufficient_privilege", roles, err)
		}
	}
	h.Forge(squat)
	ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: "c"}, `{}`)
	h.Await("the event is delivered", func() bool { return len(r.accepted()) == 1 })
}

// conditions returns the texts of the receivers that get no events, by their names.
func (h *hooks) conditions() map[string]string {
	h.T.Helper()
	c := health.Config{DB: h.As("reader"), Only: []health.Name{health.WebhookStopped},
		Thresholds: map[health.Name]time.Duration{health.WebhookStopped: time.Millisecond}}
	r, err := health.Read(h.T.Context(), c)
	if err != nil {
		h.T.Fatal(err)
	}
	texts := make(map[string]string)
	for _, held := range r.Degraded {
		texts[held.About] += held.Text + "\n"
	}
	return texts
}

// Receivers whose subscribers are deleted, or given to another login, while the service works stop alone, each with a
// condition. The others go on, and so do these once an operator has removed the cause.
func TestReceiverThatMustNotContinueStopsAlone(t *testing.T) {
	h := newHooks(t)
	admin := h.As("operator")
	receivers := map[string]*receiver{"deleted": newReceiver(t), "given": newReceiver(t), "other": newReceiver(t)}
	var config []webhooks.Receiver
	for name, r := range receivers {
		config = append(config, webhooks.Receiver{Name: name, Endpoint: endpoint(r.server.URL)})
	}
	h.start(config...)
	send := func(id string, to ...string) {
		t.Helper()
		ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(id)}, `{}`)
		for _, name := range to {
			h.Await(name+" has got "+id, func() bool {
				return slices.Contains(receivers[name].accepted(), "coupon.send.enqueued "+id+" {}")
			})
		}
	}
	send("1", "deleted", "given", "other")
	if err := subscribers.Remove(t.Context(), admin, "webhook-deleted", "", ""); err != nil {
		t.Fatal(err)
	}
	own := h.db.Config().ConnConfig.User
	another := ledgertest.As(t, h.DB, "subscriber", "reader").Config().ConnConfig.User
	if err := subscribers.Give(t.Context(), admin, "webhook-given", another, "", ""); err != nil {
		t.Fatal(err)
	}
	send("2", "other")
	send("3", "other")
	h.Await("the two stopped ones have conditions", func() bool {
		texts := h.conditions()
		return strings.Contains(texts["deleted"], "was deleted") && strings.Contains(texts["given"], "has stopped")
	})
	h.Await("the log has both reasons", func() bool {
		return h.log.has("receiver=deleted", "taskledger seek subscriber webhook-deleted --now") &&
			h.log.has("receiver=given", "belongs to the login "+another)
	})
	if err := subscribers.Seek(t.Context(), admin, "webhook-deleted", feed.Now(), "", ""); err != nil {
		t.Fatal(err)
	}
	if err := subscribers.Give(t.Context(), admin, "webhook-given", own, "", ""); err != nil {
		t.Fatal(err)
	}
	send("4", "deleted", "given", "other")
	if got := receivers["deleted"].accepted(); len(got) != 2 {
		t.Errorf("after it was made again, the deleted one has got %v", got)
	}
}

// A receiver that answers 410 Gone gets no more requests than it has slots, with a condition, and the others go on. No
// delivery is lost: once an operator resumes their kind, the receiver gets all events.
func TestGoneReceiverIsPaused(t *testing.T) {
	h := newHooks(t)
	gone, other := newReceiver(t), newReceiver(t)
	gone.status, gone.failures = http.StatusGone, 1<<30
	const tasks, slots = 100, 3
	for i := range tasks {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(i))}
		ledgertest.Enqueue(t, h.As(ledgertest.App), key, `{}`)
	}
	quick := &ledger.RetryPolicy{Ladder: []time.Duration{time.Millisecond}, Attempts: 2}
	h.start(webhooks.Receiver{Name: "gone", Endpoint: endpoint(gone.server.URL), Slots: slots, Retry: quick},
		webhooks.Receiver{Name: "other", Endpoint: endpoint(other.server.URL)})
	h.Await("the other one has got all events", func() bool { return len(other.accepted()) == tasks })
	h.Await("the receiver is paused", func() bool { return strings.Contains(h.conditions()["gone"], "410 Gone") })
	h.Await("its attempts have ended", func() bool {
		return h.deliveries("gone", ledger.StateRunning) == 0 && h.deliveries("gone", ledger.StateAvailable) == tasks
	})
	if n := gone.refused(); n < 1 || n > slots {
		t.Errorf("it has got %d requests, want at most %d", n, slots)
	}
	gone.refuse(0)
	kinds := operator.New(h.As("operator"))
	if _, err := kinds.ResumeKind(t.Context(), webhooks.Kind("gone"), operator.Audit{}); err != nil {
		t.Fatal(err)
	}
	h.Await("it has got all events", func() bool { return len(gone.accepted()) == tasks })
	if text := h.conditions()["gone"]; strings.Contains(text, "410") {
		t.Errorf("after it has answered: %s", text)
	}
}

// An overloaded receiver that asks for a retry after a second gets it after the delay of the policy, so that the
// delivery keeps its attempts; one that asks for a later one gets that, in seconds or as a date, and a day at most.
func TestRetryAfterShortensNoDelay(t *testing.T) {
	h := newHooks(t)
	ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: "1"}, `{}`)
	var receivers []webhooks.Receiver
	date := time.Date(2026, time.March, 1, 23, 59, 59, 0, time.UTC) // of the receiver's clock, which is wrong
	for name, after := range map[string]string{"early": "1", "late": "7200", "days": "172800",
		"overflow": "99999999999999999999", "date": date.Add(2 * time.Hour).Format(http.TimeFormat),
		"far":  date.Add(999 * time.Hour).Format(http.TimeFormat),
		"past": date.Add(-time.Hour).Format(http.TimeFormat)} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", after)
			w.Header().Set("Date", date.Format(http.TimeFormat))
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		t.Cleanup(server.Close)
		receivers = append(receivers, webhooks.Receiver{Name: name, Endpoint: endpoint(server.URL),
			Retry: &ledger.RetryPolicy{Ladder: []time.Duration{time.Hour}, Attempts: 3, Jitter: -1}})
	}
	h.start(receivers...)
	for name, want := range map[string]int{"early": 3600, "late": 7200, "days": 86400, "overflow": 86400, "date": 7200,
		"far": 86400, "past": 3600} {
		h.Await(name+" has failed", func() bool { return h.deliveries(name, ledger.StateRetrying) == 1 })
		seconds := servicetest.One[int](h, `
			select extract(epoch from t.due_at - e.recorded_at)::integer
			  from taskledger.event e join taskledger.timers t on t.kind = e.kind and t.biz_id = e.biz_id
			 where e.kind = $1::text and e.type = 'failed'`, string(webhooks.Kind(name)))
		if seconds != want {
			t.Errorf("%s is tried again after %d s, want %d", name, seconds, want)
		}
	}
}

// A receiver at an address that is not public gets nothing: its deliveries end dead, and neither the ledger nor the log
// has the secret or the path of the URL. A delivery that a producer forges is refused by the database.
func TestPrivateAddressesAreDead(t *testing.T) {
	h := newHooks(t)
	private := newReceiver(t)
	ledgertest.Enqueue(t, h.As(ledgertest.App), ledger.Key{Kind: "coupon.send", BizID: "1"}, `{}`)
	once := &ledger.RetryPolicy{Attempts: 1}
	url := strings.Replace(private.server.URL, "127.0.0.1", "localhost", 1) // an address would be a fault of the file
	h.start(webhooks.Receiver{Name: "inner", Endpoint: webhooks.Endpoint{URL: url + "/hidden-token"}, Retry: once})
	h.Await("the delivery is dead", func() bool { return h.deliveries("inner", ledger.StateDead) == 1 })
	if n := len(private.accepted()); n > 0 {
		t.Errorf("%d requests arrived", n)
	}
	texts := servicetest.One[string](h, `
		select string_agg(data::text, ' ') from taskledger.event where kind = $1::text`, string(webhooks.Kind("inner")))
	if !strings.Contains(texts, "127.0.0.1 is not public") && !strings.Contains(texts, "::1 is not public") {
		t.Errorf("the history has no cause: %s", texts)
	}
	for _, hidden := range []string{"hidden-token", secretText} {
		if strings.Contains(texts, hidden) {
			t.Errorf("the history has %s", hidden)
		}
	}
	forged := ledger.Key{Kind: webhooks.Kind("inner"), BizID: "2"}
	_, err := ledger.Enqueue(t.Context(), h.As(ledgertest.App), forged, nil, nil)
	var invalid *ledger.InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("a producer enqueued a delivery: %v", err)
	}
	_, err = h.As(ledgertest.App).Exec(t.Context(), `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		select 1, 0, taskledger.shard_of(k, '2'), 'enqueued', k, '2' from (values ('taskledger.webhook.inner')) v(k)`)
	if err == nil {
		t.Error("a producer inserted a delivery")
	}
}

// A file with faults is refused whole, with the name of each field, and without its secrets.
func TestParseFaults(t *testing.T) {
	t.Setenv("WEBHOOK_TEST_SHORT", "short")
	_, err := webhooks.Parse([]byte(`{"receivers": [
		{"name": "a b", "url": "ftp://x/hidden", "secret_env": "WEBHOOK_TEST_SHORT", "kinds": ["taskledger.webhook.a"],
		 "types": ["lost"], "slots": -1, "timeout": "2m", "order": "kind"},
		{"name": "c", "url": "https://user:hidden@x/"},
		{"name": "d", "url": "http://127.0.0.1:8080/hidden"},
		{"name": "e", "url": "http://0x7f000001/"}, {"name": "f", "url": "http://2130706433/"},
		{"name": "g", "url": "http://127.1/"}, {"name": "h", "url": "http://0/"},
		{"name": "i", "url": "http://0177.0.0.01./"}]}`))
	if err == nil {
		t.Fatal("it is valid")
	}
	for _, want := range []string{"receivers[0].name", "receivers[0].url", "receivers[0].secret_file",
		"receivers[0].kinds", "receivers[0].types", "receivers[0].slots", "receivers[0].timeout", "receivers[0].order",
		"receivers[1].url", "receivers[1].secret_file",
		"receivers[2].url: address 127.0.0.1 is not public",
		"receivers[3].url: must have a name", "receivers[4].url", "receivers[5].url", "receivers[6].url",
		"receivers[7].url"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no fault names %s: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hidden") {
		t.Errorf("the error has secrets: %v", err)
	}
	for text, want := range map[string]string{`{}`: "receivers", `{"receivers":[{"timeout":1}]}`: "timeout",
		`{"x":1}`: "invalid x: is not a member", `{"Receivers":[]}`: "Receivers", `{} {}`: "webhooks"} {
		if _, err := webhooks.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a fault of %s", text, err, want)
		}
	}
}
