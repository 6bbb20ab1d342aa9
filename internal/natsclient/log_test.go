package natsclient_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsserver"
)

// A log of warnings alone, as that of services.Embed, shows the end of a lost connection.
func TestLogOfWarningsShowsTheEnd(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	var log bytes.Buffer // of one goroutine of nats.go, until the connection has closed
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	closed := make(chan struct{})
	options := append(natsclient.Logging(logger, error.Error), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	nc, err := nats.Connect(server.URL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	lost, restored := nc.StatusChanged(nats.RECONNECTING), nc.StatusChanged(nats.CONNECTED)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	<-lost
	<-restored
	nc.Close()
	<-closed
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	isThere := func(message string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "msg="+message) })
	}
	if !isThere("disconnected") || !isThere("reconnected") || isThere("connected") {
		t.Errorf("%s", &log)
	}
}
