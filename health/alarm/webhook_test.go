package alarm_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/health/alarm"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// verified verifies the signature of a request and returns its message.
func verified(t testing.TB, r request) (m alarm.Message) {
	t.Helper()
	signature := r.header.Get(alarm.HeaderSignature)
	seconds, _, _ := strings.Cut(strings.TrimPrefix(signature, "t="), ",")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		t.Fatalf("signature %q", signature)
	}
	if want := alarm.Sign(secret, time.Unix(at, 0), r.body); signature != want {
		t.Errorf("signature %s, want %s", signature, want)
	}
	if err := json.Unmarshal(r.body, &m); err != nil {
		t.Fatal(err)
	}
	if m.Alarm != r.header.Get(alarm.HeaderAlarm) {
		t.Errorf("alarm %s in the body of %s", m.Alarm, r.header.Get(alarm.HeaderAlarm))
	}
	return m
}

// The signature is that of: echo -n '1700000000.{}' | openssl dgst -sha256 -hmac key.
func TestSign(t *testing.T) {
	t.Parallel()
	const want = "t=1700000000,v1=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae"
	if have := alarm.Sign("key", time.Unix(1700000000, 0), []byte("{}")); have != want {
		t.Errorf("%s, want %s", have, want)
	}
}

// While a webhook is down, its alarm is retried and no other is created. When it is up, it gets that alarm and one
// with all news since. Other receivers are not affected.
func TestWebhookDownThenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	down, up := newWebhookServer(t), newWebhookServer(t)
	down.answer(http.StatusServiceUnavailable)
	b.background(b.watcher(b.config(down.receiver("down"), up.receiver("up"))).Run)
	b.die("coupon.send", "a-", 1, "out of coupons")
	b.await("three attempts", func() bool { return len(down.got()) >= 3 && len(up.got()) == 1 })
	b.die("coupon.send", "b-", 1, "out of coupons")
	b.die("mail.send", "c-", 2, "no such address")
	attempts := len(down.got())
	b.await("more attempts", func() bool { return len(down.got()) > attempts+2 })
	for _, r := range down.got() {
		if id := r.header.Get(alarm.HeaderAlarm); id != "down/0000000000000000001" {
			t.Fatalf("alarm %s while the first one is not delivered", id)
		}
	}
	down.answer(http.StatusOK)
	delivered := func() (done []alarm.Alarm) {
		for _, a := range b.alarms() {
			if a.Receiver == "down" && a.State == ledger.StateSucceeded {
				done = append(done, a)
			}
		}
		return done
	}
	b.await("two alarms", func() bool { return len(delivered()) == 2 })
	requests := down.got()
	last := verified(t, requests[len(requests)-1])
	var texts []string
	for _, i := range last.Items {
		texts = append(texts, i.Text)
	}
	if want := []string{
		"2 tasks of kind coupon.send are dead, 1 more than reported before",
		"2 tasks of kind mail.send are dead",
	}; !slices.Equal(texts, want) {
		t.Errorf("reported %q, want %q", texts, want)
	}
	first := delivered()[1]
	history := b.history(first.Task)
	want := []ledger.EventType{"enqueued", "started", "failed", "released", "started"}
	if !slices.Equal(history[:5], want) {
		t.Errorf("history %v", history)
	}
	events, err := ledger.History(t.Context(), b.db, first.Task)
	if err != nil {
		t.Fatal(err)
	}
	if text := events[2].ErrorText(); text != `HTTP status 503: out of order\x1b[2J` {
		t.Errorf("recorded error %q", text)
	}
	ledgertest.Check(t, b.db)
}

// Errors do not contain the URL, which may have a token. Redirects are not followed.
func TestWebhookErrors(t *testing.T) {
	t.Parallel()
	closed := newWebhookServer(t)
	r := closed.receiver("closed")
	closed.server.Close()
	if err := r.Send(t.Context(), alarm.Message{}); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("error %v", err)
	}
	redirecting := newWebhookServer(t)
	redirecting.answer(http.StatusTemporaryRedirect)
	err := redirecting.receiver("redirecting").Send(t.Context(), alarm.Message{})
	if err == nil || !strings.Contains(err.Error(), "HTTP status 307") {
		t.Errorf("error %v", err)
	}
}
