package signature_test

import (
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/signature"
)

// The vector of the reference implementation of Standard Webhooks, TestWebhookSign.
func TestSign(t *testing.T) {
	t.Parallel()
	keys, err := signature.Keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const id, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`
	got := signature.Sign(keys[0], id, time.Unix(1614265330, 0), []byte(body))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"", "c2hvcnQ=", "whsec_c2hvcnQ=", "no-base64-of-any-length"} {
		if _, err := signature.Keys(bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("secret %q: %v", bad, err)
		}
	}
}
