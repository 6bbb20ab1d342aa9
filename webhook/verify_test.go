package webhook_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/signature"
	"github.com/taskledger/taskledger/webhook"
)

const secretText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// Verify accepts a request that is signed by one of the secrets and is not old, and no other.
func TestVerify(t *testing.T) {
	t.Parallel()
	const other = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"
	keys, err := signature.Keys(secretText)
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
			header.Set("Webhook-Signature", signature.Sign(keys[0], "evt_1", at, sent))
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
