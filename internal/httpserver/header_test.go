package httpserver_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/httpserver"
)

// The limits of the document of the API are those of the server: a header that is too large is refused, and a client
// that does not send all of it is disconnected. A request that no handler gets is answered in plain text.
func TestHeaders(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	go func() { served <- httpserver.Serve(ctx, l, answer, slog.New(slog.DiscardHandler)) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	send := func(request string) string {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(conn) // until the server ends the connection
		if err != nil && len(text) == 0 {
			t.Fatal(err)
		}
		return string(text)
	}
	const begin, slop = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: ", 4 << 10 // slop is that of net/http
	small := send(begin + strings.Repeat("x", api.MaxHeaderBytes-1000) + "\r\n\r\n")
	if !strings.HasPrefix(small, "HTTP/1.1 204") {
		t.Errorf("a header within the limit: %.100s", small)
	}
	large := send(begin + strings.Repeat("x", api.MaxHeaderBytes+slop) + "\r\n\r\n")
	if !strings.HasPrefix(large, "HTTP/1.1 431") {
		t.Errorf("a header beyond the limit: %.100s", large)
	}
	noRequest := send("hello\r\n\r\n")
	if !strings.HasPrefix(noRequest, "HTTP/1.1 400") {
		t.Errorf("bytes that are not a request: %.100s", noRequest)
	}
	for _, text := range []string{large, noRequest} { // as docs/http.md and the OpenAPI document describe them
		if !strings.Contains(text, "\r\nContent-Type: text/plain") || !strings.Contains(text, "\r\nConnection: close") {
			t.Errorf("not in plain text, or the connection stays open: %.200s", text)
		}
	}
	if slow := send(begin); strings.Contains(slow, "204") {
		t.Errorf("a header without an end: %.100s", slow)
	}
}
