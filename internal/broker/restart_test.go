package broker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/smalldisk"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// countingServer counts the restarts of a server.
type countingServer struct {
	*natsserver.Server
	restarts atomic.Int32
}

func (s *countingServer) Restart() error {
	s.restarts.Add(1)
	return s.Server.Restart()
}

// The disk of NATS, smaller than the stream may grow, is full and has room again. Every sample of the status between is
// degraded; without room nothing is restarted; with room everything is published without a person.
func TestFullDiskOfNATSRecovers(t *testing.T) {
	t.Parallel()
	disk := smalldisk.Mount(t, 48<<20)
	server, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(disk, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	counting := &countingServer{Server: server}
	pool := ledgertest.Pool(t, "relay")
	nc, err := outbox.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	relay, err := outbox.New(outbox.Config{
		DB: pool, NATS: nc, Logger: log, AckTimeout: 2 * time.Second,
		Hooks: []outbox.Hook{NewRestart(counting, log)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	read := func() health.Report {
		r, err := health.Read(t.Context(), health.Config{DB: pool, JetStream: js, Only: []health.Name{
			health.StreamWrites, health.RelayBlocked, health.RelayStopped, health.RelayLag,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("still waiting for %s: %+v", what, read().Degraded)
			}
		}
	}
	tasks := 0
	enqueue := func(n int) {
		t.Helper()
		for range n {
			tasks++
			key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(tasks))}
			if _, err := ledger.Enqueue(t.Context(), pool, key, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	enqueue(10)
	await("the first tasks", func() bool { return read().Outbox.Waiting == 0 && len(read().Degraded) == 0 })
	fill := filepath.Join(disk, "fill")
	if err := os.WriteFile(fill, make([]byte, 64<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	enqueue(200)
	full := time.Now()
	await("a degraded status", func() bool { return len(read().Degraded) > 0 })
	t.Logf("degraded after %s", time.Since(full))
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if r := read(); len(r.Degraded) == 0 || r.Degraded[0].Name != health.StreamWrites {
			t.Fatalf("%s after the disk was full: %+v", time.Since(full), r.Degraded)
		}
	}
	if n := counting.restarts.Load(); n != 0 {
		t.Errorf("%d restarts while the disk is full", n)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	freed := time.Now()
	await("all tasks", func() bool { return read().Outbox.Waiting == 0 })
	t.Logf("published %s after there was room", time.Since(freed))
	await("a healthy status", func() bool { return len(read().Degraded) == 0 })
	if counting.restarts.Load() != 1 {
		t.Errorf("%d restarts, want 1", counting.restarts.Load())
	}
}
