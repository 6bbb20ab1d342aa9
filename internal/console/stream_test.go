package console_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A page that follows the ledger is notified of a change, and of nothing that the change contains.
func TestStream(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.as(api.Viewer)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %v", answer.StatusCode, answer.Header)
	}
	lines := bufio.NewScanner(answer.Body)
	for i := 0; lines.Scan(); i++ {
		switch text := lines.Text(); {
		case i == 0: // the stream is open, from this position on
			if !strings.HasPrefix(text, "id: ") {
				t.Fatalf("got the line %q", text)
			}
			ledgertest.Enqueue(t, s.db, ledgertest.Key(t, "coupon.send/order-1"), `{}`)
		case text == "event: change":
			b.want(s.anyone().get("/stream"), http.StatusUnauthorized)
			return
		case text != "" && !strings.HasPrefix(text, "retry: "):
			t.Fatalf("got the line %q", text)
		}
	}
	t.Errorf("the stream ended: %v", lines.Err())
}
