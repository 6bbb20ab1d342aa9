package services_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
)

// While the API is drained, the HTTP server still answers on new connections. It stops afterwards.
func TestServerAnswersUntilItIsDrained(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.App)
	server := startNATS(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String() + "/v1/x"
	get := func() error {
		transport := &http.Transport{} // a new connection
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "here" {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	answered := make(chan error, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- services.RunAndDrain(ctx, services.Config{
			DB: ledgertest.As(t, owner, "relay"), NATS: services.ToNATS(server.URL()), StreamOff: true,
			Listener: listener,
			Handlers: map[string]http.Handler{"/v1/": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, "here")
			})},
		}, func() { answered <- get() })
	}()
	awaitReady(t, url)
	stop()
	if err := <-answered; err != nil {
		t.Errorf("while it is drained: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if get() == nil {
		t.Error("it answers after the end")
	}
}
