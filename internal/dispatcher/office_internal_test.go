package dispatcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/local"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// A dispatcher sends nothing after its lease has ended, and no contents if its windows are late.
func TestLateDispatchers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		lease      time.Duration // until its end
		window     time.Duration // since it was opened
		tasks      int           // of the first message that arrives
		hasContent bool
	}{
		{name: "in time", lease: time.Hour, tasks: 1, hasContent: true},
		{name: "the last window is old", lease: time.Hour, window: time.Minute, tasks: 1},
		{name: "the lease has ended", lease: -time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			session := t.Name()
			box, remove := local.Workers.Open(session)
			defer remove()
			o := &office{
				peers:    map[string]*peer{session: {}},
				deadline: time.Now().Add(test.lease), viewed: time.Now().Add(-test.window),
			}
			o.send(dispatch.Offer{Session: session, Tasks: []dispatch.Task{
				{Key: ledger.Key{Kind: "k", BizID: "b"}, Content: []byte("content")},
			}})
			o.deadline = time.Now().Add(time.Hour)
			o.send(dispatch.Offer{Session: session})
			ctx, cancel := context.WithCancel(t.Context())
			box.Receive(ctx, func(offer dispatch.Offer) {
				if ctx.Err() != nil {
					return
				}
				cancel()
				if len(offer.Tasks) != test.tasks {
					t.Fatalf("%d tasks", len(offer.Tasks))
				}
				if test.tasks > 0 && (offer.Tasks[0].Content != nil) != test.hasContent {
					t.Errorf("content %q", offer.Tasks[0].Content)
				}
			})
		})
	}
}

// A hostile worker takes tasks, and then writes an invalid key into its lease. The session of its earlier key ends, so
// others get these tasks.
func TestAnInvalidKeyEndsTheSession(t *testing.T) {
	t.Parallel()
	identity, err := dispatch.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	o := newOffice(Config{Logger: log}, nil, identity, lease.DispatcherClaim{},
		lease.DispatcherTerm{Incarnation: "i", Epoch: 1}, lease.Run{}, time.Now())
	defer o.limited.Close()
	rogue := lease.Session{Worker: "rogue", Key: identity.Public(), Kinds: []string{"k"}, Shards: ledger.AllShards}
	o.joinAll([]lease.Session{rogue}, lease.Conditions{})
	if n := len(o.machine.Workers()); n != 1 {
		t.Errorf("%d sessions with a valid key", n)
	}
	rogue.Key, rogue.Digest = make([]byte, len(rogue.Key)), "changed" // X25519 refuses it
	o.joinAll([]lease.Session{rogue}, lease.Conditions{})
	if n := len(o.machine.Workers()); n != 0 {
		t.Errorf("%d sessions with an invalid key", n)
	}
}

// A panic of the state machine is an error of the dispatcher, and leaves nothing locked: its other goroutines end too.
func TestPanicOfTheMachine(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(o *office, ctx context.Context) error{
		"probe":   (*office).probe,
		"reads":   (*office).readTasks,
		"permits": (*office).tidyPermits,
		"hints": func(o *office, ctx context.Context) error {
			return o.readHinted(ctx, nil, []ledger.Position{1})
		},
		"sessions": func(o *office, _ context.Context) error {
			o.joinAll([]lease.Session{{Worker: "w"}}, lease.Conditions{})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(Config{Logger: slog.New(slog.DiscardHandler)}, nil, dispatch.Identity{},
					lease.DispatcherClaim{}, lease.DispatcherTerm{}, lease.Run{}, time.Now())
				defer o.limited.Close()
				o.machine, o.hasLimits = nil, true
				err := loop.Together(t.Context(), func(ctx context.Context) error { return f(o, ctx) })
				if !errors.As(err, new(*loop.PanicError)) {
					t.Errorf("returned %v", err)
				}
				if !o.mu.TryLock() {
					t.Error("o.mu stays locked")
				}
			})
		})
	}
}

// deafNATS connects to a NATS server that reads nothing more after the first flush.
func deafNATS(t *testing.T) *nats.Conn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			<-t.Context().Done()
			_ = conn.Close()
		}()
		const info = `INFO {"server_id":"deaf","version":"2.10.0","headers":true,"max_payload":1048576}`
		_, _ = io.WriteString(conn, info+"\r\n")
		lines := bufio.NewScanner(conn)
		for pings := 0; pings < 2 && lines.Scan(); {
			if lines.Text() == "PING" {
				pings++
				_, _ = io.WriteString(conn, "PONG\r\n")
			}
		}
	}()
	nc, err := stream.Connect("nats://" + listener.Addr().String())
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// A NATS server reads nothing more, while a relay publishes pages on the same connection. The dispatcher goes on for
// the workers of its process.
func TestADeafNATSDelaysNoWorkerOfTheProcess(t *testing.T) {
	t.Parallel()
	nc := deafNATS(t)
	var published atomic.Int64
	go func() {
		for nc.Publish("page", make([]byte, 1<<20)) == nil {
			published.Add(1)
		}
	}()
	for before := int64(-1); before != published.Load(); time.Sleep(200 * time.Millisecond) { // until it is blocked
		before = published.Load()
	}

	identity, err := dispatch.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	o := newOffice(Config{NATS: nc, Logger: slog.New(slog.DiscardHandler)}, nil, identity, lease.DispatcherClaim{},
		lease.DispatcherTerm{Incarnation: "i", Epoch: 1}, lease.Run{}, time.Now().Add(time.Hour))
	defer o.limited.Close()
	go o.unsent.Receive(t.Context(), o.publish)
	remote := lease.Session{Worker: "remote", Key: identity.Public(), Kinds: []string{"k"}, Shards: ledger.AllShards}
	here := remote
	here.Worker = "here"
	session := dispatch.SessionName(here.Worker, here.Key)
	box, remove := local.Workers.Open(session)
	defer remove()
	begun := time.Now()
	o.joinAll([]lease.Session{remote, here}, lease.Conditions{}) // with a probe for each
	ctx, cancel := context.WithCancel(t.Context())
	box.Receive(ctx, func(dispatch.Offer) { cancel() })
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the probe has waited for %s", took)
	}
}

// The lease of a worker that has not changed costs nothing again, whatever its kinds. A changed lease is joined.
func TestLeasesThatHaveNotChangedAreJoinedOnce(t *testing.T) {
	identity, err := dispatch.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	o := newOffice(Config{Logger: slog.New(slog.DiscardHandler)}, nil, identity, lease.DispatcherClaim{},
		lease.DispatcherTerm{Incarnation: "i", Epoch: 1}, lease.Run{}, time.Now())
	defer o.limited.Close()
	sessions := make([]lease.Session, 100)
	for i := range sessions {
		sessions[i] = lease.Session{Worker: fmt.Sprint(i), Key: identity.Public(), Shards: ledger.AllShards,
			Digest: "1"}
		for k := range 1000 {
			sessions[i].Kinds = append(sessions[i].Kinds, fmt.Sprint("kind.", k))
		}
	}
	o.joinAll(sessions, lease.Conditions{})
	if n := testing.AllocsPerRun(10, func() { o.joinAll(sessions, lease.Conditions{}) }); n > 1000 {
		t.Errorf("%v allocations for 100 leases that have not changed", n)
	}
	sessions[0].Digest, sessions[0].Kinds = "2", nil
	o.joinAll(sessions[:1], lease.Conditions{})
	if n := len(o.machine.Workers()); n != 1 || len(o.members) != 1 || len(o.peers) != 1 {
		t.Errorf("%d workers, %d members and %d peers with one lease", n, len(o.members), len(o.peers))
	}
	o.joinAll(nil, lease.Conditions{})
	o.joinAll(sessions, lease.Conditions{})
	if n := len(o.machine.Workers()); n != 100 {
		t.Errorf("%d workers whose leases live again", n)
	}
}
