package alarm_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/webhook"
)

// verified verifies the signature of a request and returns its message.
func verified(t testing.TB, r request) (m alarm.Message) {
	t.Helper()
	id, err := webhook.Verify(r.header, r.body, secret)
	if err != nil {
		t.Fatal(err)
	}
	body := struct {
		Type string
		Data *alarm.Message
	}{Data: &m}
	if err := json.Unmarshal(r.body, &body); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("alarm_%s_%s_%d", m.Ledger, m.Alarm, m.At.UnixMicro())
	if id != want || body.Type != string(alarm.Kind) {
		t.Errorf("type %s, id %s, want %s", body.Type, id, want)
	}
	return m
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
	b.await("the news", func() bool {
		var all string
		for _, r := range up.got() {
			all += string(r.body)
		}
		return strings.Contains(all, "2 tasks of kind coupon.send") &&
			strings.Contains(all, "2 tasks of kind mail.send")
	})
	for _, r := range down.got() {
		if m := verified(t, r); m.Alarm != "down/0000000000000000001" {
			t.Fatalf("alarm %s while the first one is not delivered", m.Alarm)
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
	r.Webhook.Allow = nil
	err := r.Send(t.Context(), alarm.Message{})
	if err == nil || !strings.Contains(err.Error(), "not public") || strings.Contains(err.Error(), "hush") {
		t.Errorf("a private address: %v", err)
	}
	redirecting := newWebhookServer(t)
	redirecting.answer(http.StatusTemporaryRedirect)
	err = redirecting.receiver("redirecting").Send(t.Context(), alarm.Message{})
	if err == nil || !strings.Contains(err.Error(), "HTTP status 307") {
		t.Errorf("error %v", err)
	}
}
