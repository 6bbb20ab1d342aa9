package webhooks_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/webhook"
)

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
	m := webhooks.Message{ID: "test_1", Type: "a.test", At: time.Unix(1700000000, 0), Data: []int{7}}
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
