package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Retiring removes the consumers for exactly these shards, once. Until then the doctor names them.
func TestWorkerRetire(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := stream.Ensure(t.Context(), js, stream.Config{MaxBytes: 1 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	low := ledger.ShardRange(0, 31)
	for _, shards := range []ledger.ShardSet{low, ledger.AllShards &^ low} {
		for _, c := range stream.Consumers("coupon.send", shards) {
			if _, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: c.Durable,
				FilterSubjects: c.Filters}); err != nil {
				t.Fatal(err)
			}
		}
	}
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, ledgertest.Owner), envNATSURL: server.URL()}
	wantOrphans := func(names string) {
		t.Helper()
		stdout, stderr, _ := run(t, environment, "doctor", "-o", "jsonl")
		finding := `{"check":"consumers","level":"warning","text":"consumers without a live worker: ` + names +
			`","cure":"`
		if !strings.Contains(stdout, finding) {
			t.Errorf("the doctor does not report %s: %s%s", names, stdout, stderr)
		}
	}
	wantOrphans("coupon.send 0-31, coupon.send 32-63")
	for _, c := range []struct {
		output, stdout string
		exit           int
	}{
		{output: "jsonl", stdout: `{"kind":"coupon.send","shards":"0-31"}` + "\n", exit: exitOK},
		{output: "jsonl", stdout: "", exit: exitNotFound},
	} {
		stdout, stderr, exit := run(t, environment, "worker", "retire", "coupon.send", "0-31", "-o", c.output)
		if stdout != c.stdout || exit != c.exit {
			t.Errorf("exit %d, %q; want %d, %q: %s", exit, stdout, c.exit, c.stdout, stderr)
		}
	}
	wantOrphans("coupon.send 32-63")
	left := 0
	for range s.ConsumerNames(t.Context()).Name() {
		left++
	}
	if left != 2 {
		t.Errorf("%d consumers are left, want the two of the other shards", left)
	}
}
