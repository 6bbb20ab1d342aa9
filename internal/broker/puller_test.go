package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A server of a cluster cannot see that a worker at another member has gone. A worker that stops keeps its request
// until that has ended, so the next worker receives the messages at once, and not after AckWait.
func TestPullerThatStopsInACluster(t *testing.T) {
	t.Parallel()
	d, peers := newDatabase(t), peersOn(t)
	for _, self := range peers {
		d.run(broker.Config{Peers: peers, ClusterListen: self})
	}
	d.awaitMembers(3)
	js, err := jetstream.New(d.connect(ledgertest.Owner, natsconfig.Admin))
	if err != nil {
		t.Fatal(err)
	}
	var consumer jetstream.Consumer
	d.await("the stream", func() error {
		s, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
			Name: stream.Name, Subjects: []string{stream.AllSubjects}, Replicas: 3})
		if err == nil {
			consumer, err = s.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{
				Durable: "work", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour})
		}
		return err
	})
	var nc *nats.Conn
	d.await("a worker at another member than the consumer's leader", func() error {
		info, err := consumer.Info(t.Context())
		if err != nil {
			return err
		}
		nc, err = broker.Connect(ledgertest.As(t, d.db, "worker"), natsconfig.Worker)
		if err != nil {
			return err
		}
		t.Cleanup(nc.Close)
		if info.Cluster.Leader == nc.ConnectedServerName() {
			return fmt.Errorf("it is at the leader, %s", info.Cluster.Leader)
		}
		return nil
	})

	const expiry = 2 * time.Second
	stops := stream.NewPuller(nc, "work", expiry)
	if err := stops.Ask(10, 0); err != nil {
		t.Fatal(err)
	}
	d.await("its request", func() error {
		info, err := consumer.Info(t.Context())
		if err == nil && info.NumWaiting == 0 {
			err = fmt.Errorf("none waits")
		}
		return err
	})
	stops.Finish(func(m *nats.Msg) { t.Errorf("it received %s", m.Subject) })
	if rest := stops.Close(); len(rest) > 0 {
		t.Errorf("%d messages were in transit", len(rest))
	}
	if _, err := js.Publish(t.Context(), "ledger.0.enqueued.test", nil, jetstream.WithMsgID("1")); err != nil {
		t.Fatal(err)
	}
	next := stream.NewPuller(nc, "work", expiry)
	defer next.Close()
	d.await("the next worker to receive the message", func() error {
		if !next.Open() {
			if err := next.Ask(10, 0); err != nil {
				return err
			}
		}
		select {
		case m := <-next.Msgs():
			if work, err := next.See(m); !work {
				return fmt.Errorf("a status came: %w", err)
			}
			return nil
		case <-time.After(expiry):
			return fmt.Errorf("no message")
		}
	})
}
