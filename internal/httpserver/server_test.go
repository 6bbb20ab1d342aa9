package httpserver_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/taskledger/taskledger/internal/httpserver"
)

// A request that runs at the shutdown ends in order; new ones are refused.
func TestShutdownWaitsForRequests(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-release
		if r.Context().Err() == nil {
			_, _ = io.WriteString(w, "whole")
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- httpserver.Serve(ctx, l, handler, slog.New(slog.DiscardHandler)) }()
	answered := make(chan string, 1)
	go func() {
		answer, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		answered <- string(text)
	}()
	<-begun
	stop()
	for { // until the shutdown has closed the listener
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	close(release)
	if have := <-answered; have != "whole" {
		t.Errorf("the answer is %q", have)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A listener that fails ends the server with its error.
func TestListenerFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if httpserver.Serve(t.Context(), l, http.NotFoundHandler(), slog.New(slog.DiscardHandler)) == nil {
		t.Error("no error")
	}
}
