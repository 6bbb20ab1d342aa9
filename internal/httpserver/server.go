// Package httpserver runs the HTTP server of a process: timeouts, and a shutdown that ends requests in order.
package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// A client that sends its header more slowly is disconnected.
	headerTimeout = 5 * time.Second
	// A connection without requests is closed after it.
	idleTimeout = 2 * time.Minute
	// At shutdown, running requests have this long to end.
	shutdownTimeout = 5 * time.Second
	maxHeaderBytes  = 32 << 10
)

// Serve serves requests until ctx is done. Then it accepts no more connections, and waits 5 s for running requests.
// After that it cancels the remaining requests' contexts and closes their connections.
//
// A handler that streams should end its streams when the ctx of its service is done. Serve sets no timeout for bodies
// and responses: handlers bound their own.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	requests, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(requests, shutdownTimeout)
		defer cancel()
		if server.Shutdown(bounded) != nil {
			abort()
			_ = server.Close() // the listener is closed already
		}
	}()
	err := server.Serve(listener)
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}
