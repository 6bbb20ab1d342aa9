package outbox_test

import (
	"flag"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

var leaderChanges = flag.Int("leader-changes", 10, "changes of the leader in TestLeaderChanges")

// startCluster starts three NATS servers with JetStream that form a cluster, and returns their URLs.
func startCluster(t *testing.T) (urls []string) {
	t.Helper()
	const nodes = 3
	var routes []*url.URL
	var ports [2][nodes]int // for clients, for routes
	for i := range nodes {
		for kind := range ports {
			port, err := reserve.Port()
			if err != nil {
				t.Fatal(err)
			}
			ports[kind][i] = port
		}
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[1][i])})
	}
	var servers []*server.Server
	for i := range nodes {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("node-%d", i), Host: "127.0.0.1", Port: ports[0][i], NoSigs: true,
			JetStream: true, DisableJetStreamBanner: true, StoreDir: t.TempDir(),
			Cluster: server.ClusterOpts{Name: "three", Host: "127.0.0.1", Port: ports[1][i]}, Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(s.Shutdown)
		servers = append(servers, s)
		urls = append(urls, s.ClientURL())
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		current := 0
		for _, s := range servers {
			if s.JetStreamIsCurrent() {
				current++
			}
		}
		if current == nodes {
			return urls
		}
		if time.Now().After(deadline) {
			t.Fatal("the cluster did not form")
		}
	}
}

// The leader of a stream with three replicas changes while events are published, many of the same tasks. Every event
// appears, in order within each task: an event is sent only after the previous one is stored.
func TestLeaderChanges(t *testing.T) {
	t.Parallel()
	urls := startCluster(t)
	b := &bundle{t: t, pool: ledgertest.Pool(t, ledgertest.App, "relay", "operator")}
	connect := func(url string) (*nats.Conn, jetstream.JetStream) { return connectTo(t, url) }
	b.nc, b.js = connect(urls[0])
	admin, _ := connect(urls[1])
	observed := observe(t, b.nc.ConnectedUrl())
	b.relay(func(c *outbox.Config) { c.Stream.Replicas = 3; c.AckTimeout = 500 * time.Millisecond })
	b.await("the stream exists", func() bool { _, err := b.js.Stream(b.ctx(), stream.Name); return err == nil })
	stop := make(chan struct{})
	ended := make(chan struct{})
	var changes atomic.Int64
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(100+changes.Load()%3*80) * time.Millisecond):
			}
			answer, err := admin.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream.Name, nil, time.Second)
			if err == nil && strings.Contains(string(answer.Data), `"success":true`) {
				changes.Add(1)
			}
		}
	}()
	for i := 0; changes.Load() < int64(*leaderChanges); i++ {
		b.enqueueAndStart(fmt.Sprintf("page-%d-", i), 250)
	}
	close(stop)
	<-ended
	b.awaitPublished()
	b.check()
	observed.check()
	t.Logf("%d changes of the leader, generation %d", changes.Load(), b.generation())
}

func connectTo(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := outbox.Connect(url, nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// An operator adds replicas to the stream while a relay works, and removes them again. Each event is published once.
func TestReplicasChange(t *testing.T) {
	t.Parallel()
	urls := startCluster(t)
	b := &bundle{t: t, pool: ledgertest.Pool(t, ledgertest.App, "relay", "operator")}
	b.nc, b.js = connectTo(t, urls[0])
	b.relay()
	b.await("the stream exists", func() bool { _, err := b.js.Stream(b.ctx(), stream.Name); return err == nil })
	for i, replicas := range []int{1, 3, 1} {
		b.editStream(func(c *jetstream.StreamConfig) { c.Replicas = replicas })
		for page := range 5 {
			b.enqueueAndStart(fmt.Sprintf("page-%d-%d-", i, page), 50)
			b.awaitPublished()
		}
	}
	b.checkOnce()
}

// A relay is killed after publishing, and an operator changes the number of replicas before another relay starts. Each
// event is on the stream once.
func TestReplicasChangeAfterAKill(t *testing.T) {
	for _, change := range []struct{ from, to int }{{from: 3, to: 1}, {from: 1, to: 3}} {
		t.Run(fmt.Sprintf("%d-to-%d", change.from, change.to), func(t *testing.T) {
			t.Parallel()
			url := startCluster(t)[0]
			b := newBundle(t) // its server is not used
			b.nc, b.js = connectTo(t, url)
			r := b.relay(func(c *outbox.Config) { c.Stream.Replicas = change.from })
			b.enqueueAndStart("first-", 1)
			b.awaitPublished()
			r.end()
			b.enqueueAndStart("order-", 100)
			before := b.state().LastSeq
			b.runKilled(fault.RelayPublished, 1, relayNATS+"="+url)
			if b.state().LastSeq == before {
				t.Error("nothing was published before the kill")
			}
			b.editStream(func(c *jetstream.StreamConfig) { c.Replicas = change.to })
			b.relay(func(c *outbox.Config) { c.Stream.Replicas = change.to })
			b.awaitPublished()
			b.checkOnce()
		})
	}
}

// observer receives a relay's messages and their acknowledgements, in the server's order.
type observer struct {
	t    *testing.T
	nc   *nats.Conn
	mu   sync.Mutex
	sent map[string]eventVersion // by reply subject
	in   map[eventVersion]int    // the session in which an event was last sent
	done map[eventVersion]bool
	// sessions counts the requests for the stream's state. Each session of the relay begins with one. Then it reads the
	// previous session's messages, so it need not wait for their acknowledgements.
	sessions int
	seen     int // versions above 1
	fail     []string
}

type eventVersion struct {
	key     ledger.Key
	version ledger.Version
}

func observe(t *testing.T, url string) *observer {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	o := &observer{t: t, nc: nc, sent: make(map[string]eventVersion), in: make(map[eventVersion]int),
		done: make(map[eventVersion]bool)}
	if _, err := nc.Subscribe(">", o.receive); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *observer) receive(msg *nats.Msg) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if strings.HasPrefix(msg.Subject, "$JS.API.STREAM.INFO.") {
		o.sessions++
	}
	if e, ok := o.sent[msg.Subject]; ok && strings.Contains(string(msg.Data), `"seq":`) {
		o.done[e] = true
		return
	}
	m, err := stream.Decode(msg.Subject, msg.Header, nil)
	if err != nil || msg.Reply == "" || strings.HasPrefix(msg.Reply, "$JS.ACK.") {
		return // not from the relay; a delivery to a consumer has its event's subject, too
	}
	e := eventVersion{m.Key, m.Version}
	o.sent[msg.Reply], o.in[e] = e, o.sessions
	if m.Version == 1 {
		return
	}
	before := eventVersion{m.Key, m.Version - 1}
	if o.seen++; !o.done[before] && o.in[before] == o.sessions {
		o.fail = append(o.fail, m.ID())
	}
}

// check checks that within a session no event was sent before the previous one was acknowledged.
func (o *observer) check() {
	o.t.Helper()
	if err := o.nc.Flush(); err != nil {
		o.t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == 0 || len(o.fail) > 0 {
		o.t.Errorf("%d of %d events were sent before the event before was acknowledged: %q", len(o.fail), o.seen,
			o.fail[:min(3, len(o.fail))])
	}
}

// enqueueAndStart writes two events for each of n tasks in one transaction, so that a page contains both.
func (b *bundle) enqueueAndStart(prefix string, n int) {
	b.t.Helper()
	err := pgx.BeginFunc(b.ctx(), b.pool, func(tx pgx.Tx) error {
		var entries []ledger.Entry
		var requests []ledger.AppendRequest
		for i := range n {
			key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint(prefix, i))}
			entries = append(entries, ledger.Entry{Key: key})
			requests = append(requests, ledger.AppendRequest{
				Key: key, Expected: 1, Type: ledger.EventStarted, Actor: "test"})
		}
		if _, err := ledger.EnqueueMany(b.ctx(), tx, entries); err != nil {
			return err
		}
		for _, r := range ledger.AppendEach(b.ctx(), tx, requests) {
			if r.Err != nil {
				return r.Err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}
