package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/webhook"
)

// The vector of the reference implementation of Standard Webhooks, TestWebhookSign.
func TestSign(t *testing.T) {
	t.Parallel()
	key, err := webhook.ParseSecret(secretText)
	if err != nil {
		t.Fatal(err)
	}
	got := webhook.Sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"", "c2hvcnQ=", "whsec_c2hvcnQ=", "no base64 of any length"} {
		if _, err := webhook.ParseSecret(bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("secret %q: %v", bad, err)
		}
	}
}

// Verify accepts a request that is signed by one of the secrets and is not old, and no other.
func TestVerify(t *testing.T) {
	t.Parallel()
	const other = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"
	key, err := webhook.ParseSecret(secretText)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change  func(header http.Header)
		age     time.Duration
		body    string
		secrets string
		want    string // a part of the error; "": none
	}{
		"as sent":         {},
		"several secrets": {secrets: other + "\n" + secretText},
		"several signatures": {change: func(h http.Header) {
			h.Set("Webhook-Signature", "v1,x "+h.Get("Webhook-Signature"))
		}},
		"four minutes old": {age: 4 * time.Minute},
		"six minutes old":  {age: 6 * time.Minute, want: "by at most 5m0s"},
		"from the future":  {age: -6 * time.Minute, want: "by at most 5m0s"},
		"another body":     {body: `{"x": 2}`, want: "must match one of the secrets"},
		"another secret":   {secrets: other, want: "must match one of the secrets"},
		"another id":       {change: func(h http.Header) { h.Set("Webhook-Id", "evt_2") }, want: "must match"},
		"no signature":     {change: func(h http.Header) { h.Del("Webhook-Signature") }, want: "must match"},
		"no time":          {change: func(h http.Header) { h.Del("Webhook-Timestamp") }, want: "seconds since 1970"},
		"no secret":        {secrets: " ", want: "secret must not be empty"},
		"invalid secret":   {secrets: "hidden", want: "secret must be whsec_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent, at := []byte(`{"x": 1}`), time.Now().Add(-c.age)
			header := http.Header{}
			header.Set("Webhook-Id", "evt_1")
			header.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
			header.Set("Webhook-Signature", webhook.Sign(key, "evt_1", at, sent))
			if c.change != nil {
				c.change(header)
			}
			if c.body != "" {
				sent = []byte(c.body)
			}
			if c.secrets == "" {
				c.secrets = secretText
			}
			id, err := webhook.Verify(header, sent, c.secrets)
			switch {
			case c.want == "" && (err != nil || id != "evt_1"):
				t.Errorf("%q, %v", id, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || id != ""):
				t.Errorf("%q, %v, want %s", id, err, c.want)
			case err != nil && strings.Contains(err.Error(), "hidden"):
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

// An endpoint sends one signed request, to public addresses and those that it allows.
func TestEndpointSends(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if id, err := webhook.Verify(r.Header, body, secretText); err != nil || id != "test_1" {
			t.Errorf("%q, %v", id, err)
		}
		bodies <- string(body)
	}))
	t.Cleanup(server.Close)
	to := endpoint(server.URL + "/hidden")
	to.SecretFile = secretFile(t)
	m := webhook.Message{ID: "test_1", Type: "a.test", At: time.Unix(1700000000, 0), Data: []int{7}}
	if err := to.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got := <-bodies; got != `{"type":"a.test","timestamp":"2023-11-14T22:13:20Z","data":[7]}` {
		t.Errorf("body %s", got)
	}
	to.Allow = nil
	to.URL = strings.Replace(to.URL, "127.0.0.1", "localhost", 1)
	err := to.Send(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "is not public") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a private address: %v", err)
	}
}
