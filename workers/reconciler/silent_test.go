package reconciler_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// silentNATS returns a connection on which no request is answered, as while the members of a cluster have no leader.
func silentNATS(t *testing.T) *nats.Conn {
	t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Accounts: `authorization {
		users = [{user: a, password: b, permissions: {subscribe: {deny: "_INBOX.>"}}}]
	}`})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	nc, err := nats.Connect(server.Host(), nats.UserInfo("a", "b"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// A wait for NATS is no work of a pass: the next one comes after Every, however long the wait was.
func TestPauseAfterAWaitForNATS(t *testing.T) {
	t.Parallel()
	const every = 10 * time.Millisecond
	c := reconciler.Config{DB: ledgertest.Pool(t), NATS: silentNATS(t), Every: every}
	r := reconciler.Walk(servicetest.Try(reconciler.New(c))(t))
	ctx, cancel := context.WithTimeout(t.Context(), 50*every)
	defer cancel()
	pause, err := reconciler.PauseAfter(ctx, r)
	if err == nil || pause != every {
		t.Errorf("the next pass after %s, want %s: %v", pause, every, err)
	}
}

// lines is a log. It is safe for concurrent use.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

// While NATS is unavailable, many passes fail and few lines are logged.
func TestFailedPassesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	nc := silentNATS(t)
	nc.Close()
	var log lines
	r := servicetest.Try(reconciler.New(reconciler.Config{DB: ledgertest.Pool(t), NATS: nc, Every: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	text := log.all.String()
	if n := strings.Count(text, "cannot reconcile"); n != 2 || !strings.Contains(text, "times=") {
		t.Errorf("%d lines, want the first and the last one with the number of all:\n%s", n, text)
	}
}
