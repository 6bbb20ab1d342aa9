package outbox_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := outbox.New(outbox.Config{
		LeaseTTL: time.Millisecond, CheckEvery: -1, AckTimeout: 1,
		Stream: outbox.StreamConfig{Replicas: 6, MaxBytes: 1, MaxAge: time.Millisecond},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{
		"DB is required", "NATS is required", "LeaseTTL must be at least 10ms, got 1ms", "CheckEvery", "AckTimeout",
		"replicas must be between 1 and 5, got 6", "max bytes", "max age",
	} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q does not name %q", err, fault)
		}
	}
}

func TestConnectionThatBuffersIsRefused(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	nc, err := nats.Connect(b.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := outbox.New(outbox.Config{DB: b.pool, NATS: nc}); !errors.Is(err, stream.ErrBuffered) {
		t.Errorf("error %v, want %v", err, stream.ErrBuffered)
	}
}

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	relay := ledgertest.URL(t, "relay")
	plantest.PrepareAs(t, func(string) string { return relay })
}

// A connection with wrong credentials stays closed; the relay returns an error instead of waiting.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	address, err := url.Parse(b.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.User("wrong")
	nc, err := outbox.Connect(address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := b.relay(func(c *outbox.Config) { c.NATS = nc })
	err = r.wait()
	r.err = nil
	if !errors.Is(err, nats.ErrConnectionClosed) || !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("the relay ended with %v, want a closed connection and the reason", err)
	}
}
