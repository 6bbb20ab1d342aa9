package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
)

const forwarderSetting = "Forwarder with TrackMsgId, polls 10ms, SubscribeBatchSize"

// relayMeasure measures the relay of a committed backlog to JetStream.
func relayMeasure() measure {
	return measure{
		name: "relay", title: "200,000 committed events to JetStream, on one server and with three replicas on three",
		contenders: []contender{
			{system: ours,
				run: func(ctx context.Context, t *trial) error {
					return relayOurs(ctx, t, 1, false, t.size(200_000, 60_000))
				}},
			{system: oursReplicated, notQuick: true,
				run: func(ctx context.Context, t *trial) error {
					return relayOurs(ctx, t, 3, false, t.size(200_000, 60_000))
				}},
			{system: peerWatermill, setting: forwarderSetting, tune: []string{"1000", "100", "5000"},
				run: func(ctx context.Context, t *trial) error {
					return relayWatermill(ctx, t, false, t.size(200_000, 15_000))
				}},
			{system: floorJetStream, setting: "messages in flight", tune: []string{"4000", "1000", "16000"},
				run: func(ctx context.Context, t *trial) error {
					return publishRaw(ctx, t, 1, false, t.size(200_000, 60_000))
				}},
			{system: floorJetStreamReplicated, notQuick: true, setting: "messages in flight",
				tune: []string{"4000", "1000", "16000"},
				run: func(ctx context.Context, t *trial) error {
					return publishRaw(ctx, t, 3, false, t.size(200_000, 60_000))
				}},
			{system: floorPipeline,
				run: func(ctx context.Context, t *trial) error { return relayFloor(ctx, t, t.size(200_000, 60_000)) }},
		},
	}
}

// relaySyncedMeasure is relayMeasure with a broker that syncs before it acknowledges.
func relaySyncedMeasure() measure {
	return measure{
		name: "relay-fsync", notQuick: true,
		title: "20,000 committed events to a JetStream that syncs before it acknowledges",
		contenders: []contender{
			{system: ours,
				run: func(ctx context.Context, t *trial) error {
					return relayOurs(ctx, t, 1, true, t.size(20_000, 2_000))
				}},
			{system: peerWatermill, setting: forwarderSetting, tune: []string{"1000"},
				run: func(ctx context.Context, t *trial) error {
					return relayWatermill(ctx, t, true, t.size(20_000, 2_000))
				}},
			{system: floorJetStream, setting: "messages in flight", tune: []string{"4000", "1000"},
				run: func(ctx context.Context, t *trial) error {
					return publishRaw(ctx, t, 1, true, t.size(20_000, 2_000))
				}},
		},
	}
}

// relayOurs measures the relay. The stream exists before the clock starts, as for the peers.
func relayOurs(ctx context.Context, t *trial, replicas int, syncAlways bool, events int) error {
	n, err := newReplicatedNode(ctx, t, replicas, syncAlways)
	if err != nil {
		return err
	}
	if err := n.ensureStream(ctx); err != nil {
		return err
	}
	if err := fillOurs(ctx, t, events); err != nil {
		return err
	}
	if err := checkpointAndAnalyze(ctx, t); err != nil {
		return err
	}
	c := newCounter(events)
	begin := time.Now()
	if err := n.relay(ctx, c.add); err != nil {
		return err
	}
	if err := awaitClosed(ctx, c.done); err != nil {
		return err
	}
	t.add(rate, float64(events)/time.Since(begin).Seconds(), "events/s")
	return checkMessages(ctx, n.nc, events)
}

// ensureStream makes the stream that the relay would make.
func (n *node) ensureStream(ctx context.Context) error {
	var installation string
	if err := n.t.db.QueryRow(ctx, "select taskledger_internal.installation()").Scan(&installation); err != nil {
		return err
	}
	js, err := jetstream.New(n.nc)
	if err != nil {
		return err
	}
	_, err = stream.Ensure(ctx, js, streamOf(n.replicas), installation)
	return err
}

// checkMessages returns an error unless the streams have n messages.
func checkMessages(ctx context.Context, nc *nats.Conn, n int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	var messages uint64
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		messages += info.State.Msgs
	}
	if err := list.Err(); err != nil {
		return err
	}
	if messages != uint64(n) {
		return fmt.Errorf("%d messages on the stream, want %d", messages, n)
	}
	return nil
}

// publishRaw measures the floor, without a database: the asynchronous publish of nats.go to a stream like
// ours. The messages have ids and our body, and exist before the clock starts. After that a pull consumer
// reads them and acknowledges each one.
func publishRaw(ctx context.Context, t *trial, replicas int, syncAlways bool, messages int) error {
	address, err := brokerOf(ctx, t, replicas, syncAlways)
	if err != nil {
		return err
	}
	nc, err := outbox.Connect(address)
	if err != nil {
		return err
	}
	defer nc.Close()
	var inFlight int
	if _, err := fmt.Sscan(t.tuning, &inFlight); err != nil {
		return err
	}
	failed := make(chan error, 1)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			select {
			case failed <- err:
			default:
			}
		}))
	if err != nil {
		return err
	}
	if _, err := stream.Ensure(ctx, js, streamOf(replicas), "bench"); err != nil {
		return err
	}
	all := make([]*nats.Msg, messages)
	for i := range all {
		all[i] = &nats.Msg{Subject: destination, Data: args, Header: nats.Header{nats.MsgIdHdr: {taskID(i)}}}
	}
	begin := time.Now()
	for _, m := range all {
		// If too many messages are in flight, this waits for an acknowledgement.
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(10*time.Second)); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-js.PublishAsyncComplete():
	}
	t.add(rate, float64(messages)/time.Since(begin).Seconds(), "events/s")
	select {
	case err := <-failed:
		return err
	default:
	}
	if err := checkMessages(ctx, nc, messages); err != nil {
		return err
	}
	return consumeRaw(ctx, t, js, messages)
}

func consumeRaw(ctx context.Context, t *trial, js jetstream.JetStream, messages int) error {
	consumer, err := js.CreateConsumer(ctx, "LEDGER", jetstream.ConsumerConfig{
		Durable: "raw", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4000,
	})
	if err != nil {
		return err
	}
	c := newCounter(messages)
	begin := time.Now()
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		if m.Ack() == nil {
			c.add(1)
		}
	}, jetstream.PullMaxMessages(4000))
	if err != nil {
		return err
	}
	defer consuming.Stop()
	if err := awaitClosed(ctx, c.done); err != nil {
		return err
	}
	t.add("consume", float64(messages)/time.Since(begin).Seconds(), "events/s")
	return nil
}
