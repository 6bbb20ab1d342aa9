package reconciler_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/operator"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// swallow acknowledges every message of kind Order without an attempt, until the returned function is called.
func (b *fixture) swallow() (stop func()) {
	b.T.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var ended []chan struct{}
	for _, consumer := range stream.Consumers(servicetest.Order.Name(), ledger.AllShards) {
		c := servicetest.Try(b.JS.Consumer(ctx, stream.Name, consumer.Durable))(b.T)
		done := make(chan struct{})
		ended = append(ended, done)
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				messages, err := c.Fetch(10, jetstream.FetchMaxWait(100*time.Millisecond))
				if err != nil {
					return
				}
				for m := range messages.Messages() {
					_ = m.DoubleAck(ctx)
				}
			}
		}()
	}
	return func() {
		cancel()
		for _, done := range ended {
			<-done
		}
	}
}

// A task whose message vanishes each time is released after ever longer delays, and is reported until another event
// follows.
func TestReleasesInARowAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	stop := b.swallow()
	k := b.Enqueue("o-1")
	const grace = 20 * time.Millisecond
	r := servicetest.Try(reconciler.New(reconciler.Config{
		DB: b.DB, NATS: b.NC, Every: 10 * time.Millisecond, Grace: grace, Logger: b.Logger(slog.LevelWarn),
	}))(t)
	b.Start(r.Run)
	reported := func() []operator.RepeatedTask {
		return servicetest.Try(operator.ReadReleased(b.Context(), b.DB))(t)
	}
	b.Await("a report", func() bool { return len(reported()) == 1 })
	if got := reported()[0]; got.Key != k || got.Times < 3 || got.Since.IsZero() {
		t.Errorf("reported %+v", got)
	}
	b.Await("some releases", func() bool { return b.releases() >= 8 })
	history := b.History(k)
	for i, e := range history[4:8] { // each delay is at least twice as long as the one before
		if since := e.RecordedAt.Sub(history[i+3].RecordedAt); since < grace<<(i+1) {
			t.Errorf("release %d follows after %s, want at least %s", i+4, since, grace<<(i+1))
		}
	}
	stop()
	b.Work(workers.Config{}, servicetest.Exactly(servicetest.InsertEffect, nil))
	b.AwaitState(k, ledger.StateSucceeded)
	if all := reported(); len(all) != 0 {
		t.Errorf("reported after the task succeeded: %+v", all)
	}
}
