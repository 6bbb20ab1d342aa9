package natsserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/reserve"
)

// start starts a server and closes it at the end of the test.
func start(t *testing.T, config natsserver.Config) *natsserver.Server {
	t.Helper()
	if config.Dir == "" {
		config.Dir = t.TempDir()
	}
	s, err := natsserver.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// within returns a context for operations that end soon or never.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// connect opens a connection that reconnects after a restart of the server.
func connect(t *testing.T, s *natsserver.Server) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// publish creates the stream unless it exists, and publishes n messages to it.
func publish(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	config := jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}
	if _, err := js.CreateOrUpdateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := js.Publish(within(t), "s", []byte("m")); err != nil {
			t.Fatal(err)
		}
	}
}

func stored(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	stream, err := js.Stream(within(t), "S")
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

func TestRestartKeepsStreamsAndAddress(t *testing.T) {
	s := start(t, natsserver.Config{})
	address := s.URL()
	publish(t, connect(t, s), 3)
	s.Stop()
	s.Stop()
	if _, err := nats.Connect(s.URL()); !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("connect to a stopped server: %v, want ErrNoServers", err)
	}
	for range 2 { // from stopped, and from running
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	if got := stored(t, connect(t, s)); got != 3 {
		t.Errorf("%d messages, want 3", got)
	}
	if s.URL() != address {
		t.Errorf("the address changed from %s to %s", address, s.URL())
	}
}

// A server restarts on its port while the process starts children, each of which has the listener open for a moment.
func TestRestartWhileChildrenStart(t *testing.T) {
	t.Parallel()
	server := start(t, natsserver.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, os.Args[0], "-test.run=^$").Run() // it may be cancelled
			}
		})
	}
	for range 30 {
		if err := server.Restart(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	group.Wait()
}

func TestClientsReconnectAfterARestart(t *testing.T) {
	s := start(t, natsserver.Config{})
	js := connect(t, s)
	reconnected := make(chan struct{}, 1)
	js.Conn().SetReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} })
	publish(t, js, 1)
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reconnected:
	case <-within(t).Done():
		t.Fatal("the client did not reconnect")
	}
	publish(t, js, 1)
	if got := stored(t, js); got != 2 {
		t.Errorf("%d messages, want 2", got)
	}
}

func TestWipeRemovesTheStreams(t *testing.T) {
	s := start(t, natsserver.Config{})
	publish(t, connect(t, s), 1)
	if err := s.Wipe(); err == nil {
		t.Error("a running server was wiped")
	}
	s.Stop()
	if err := s.Wipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, s).Stream(within(t), "S"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream after the wipe: %v, want ErrStreamNotFound", err)
	}
}

func TestDirectoryHasOneServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for", "it")
	first := start(t, natsserver.Config{Dir: dir})
	refused := func(when string) {
		t.Helper()
		_, err := natsserver.Start(natsserver.Config{Dir: dir})
		pid := fmt.Sprint(os.Getpid())
		if !errors.Is(err, reserve.ErrHeld) || !strings.Contains(err.Error(), dir) ||
			!strings.Contains(err.Error(), pid) {
			t.Errorf("second server while the first is %s: %v, want ErrHeld, the directory and the process", when, err)
		}
	}
	refused("running")
	first.Stop()
	refused("stopped")
	if err := first.Restart(); err != nil {
		t.Fatal(err)
	}
	publish(t, connect(t, first), 2)
	for range 2 {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Restart(); err == nil {
		t.Error("a closed server started again")
	}
	if err := first.Wipe(); err == nil {
		t.Error("a closed server was wiped: another server may have its directory")
	}
	if got := stored(t, connect(t, start(t, natsserver.Config{Dir: dir}))); got != 2 {
		t.Errorf("%d messages, want 2", got)
	}
}

func TestTokenIsRequired(t *testing.T) {
	s := start(t, natsserver.Config{})
	address, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if host, _, _ := net.SplitHostPort(address.Host); host != "127.0.0.1" {
		t.Errorf("listens on %s, want 127.0.0.1", host)
	}
	for _, user := range []*url.Userinfo{nil, url.User("guessed")} {
		address.User = user
		if _, err := nats.Connect(address.String()); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("connect with %q: %v, want ErrAuthorization", user.String(), err)
		}
	}
	if given := start(t, natsserver.Config{Token: "given"}); !strings.HasPrefix(given.URL(),
		"nats://given@127.0.0.1:") {
		t.Errorf("address %s does not have the given token", given.URL())
	}
}

func TestLimits(t *testing.T) {
	s := start(t, natsserver.Config{MaxPayload: 4 << 10, MaxStore: 32 << 10, SyncAlways: true})
	js := connect(t, s)
	publish(t, js, 1)
	if _, err := js.Publish(within(t), "s", make([]byte, 5<<10)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("publish of 5 KiB: %v, want ErrMaxPayload", err)
	}
	var err error
	published := 0
	for ; err == nil && published < 100; published++ {
		_, err = js.Publish(within(t), "s", make([]byte, 4<<10))
	}
	var refused *jetstream.APIError
	if !errors.As(err, &refused) {
		t.Errorf("after %d messages of 4 KiB: %v, want a refusal", published, err)
	}
}

func TestFailedStartReportsTheReason(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	_, err = natsserver.Start(natsserver.Config{Dir: dir, Port: taken.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("on a taken port: %v", err)
	}
	start(t, natsserver.Config{Dir: dir}) // the failed start has released the directory

	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = natsserver.Start(natsserver.Config{Dir: filepath.Join(dir, "file")}); err == nil {
		t.Error("started in a file")
	}
	lock := filepath.Join(t.TempDir(), "lock")
	if err := os.Mkdir(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = natsserver.Start(natsserver.Config{Dir: filepath.Dir(lock)})
	if err == nil || !strings.Contains(err.Error(), "cannot lock the directory: open "+lock) ||
		strings.Contains(err.Error(), "in use") {
		t.Errorf("without a file to lock: %v", err)
	}
	if _, err = natsserver.Start(natsserver.Config{}); err == nil {
		t.Error("started without a directory")
	}
}

func TestLog(t *testing.T) {
	var text bytes.Buffer
	s := start(t, natsserver.Config{Log: slog.New(slog.NewTextHandler(&text, nil))})
	s.Stop()
	if !strings.Contains(text.String(), "Server is ready") {
		t.Errorf("the log is %q", text.String())
	}
}
