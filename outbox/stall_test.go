package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// named returns the address of a database with an application name.
func named(t *testing.T, address, application string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", application)
	u.RawQuery = q.Encode()
	return u.String()
}

// produce enqueues a task every few milliseconds until stop is closed.
func (b *bundle) produce(stop <-chan struct{}) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("steady-%d", i))}
			if _, err := ledger.Enqueue(context.Background(), b.pool, key, nil, nil); err != nil {
				b.t.Error(err)
				return
			}
		}
	}()
	return ended
}

// longestStall observes a relay until end is closed, and returns the longest time between two messages that it
// published.
func longestStall(published *atomic.Int64, end <-chan struct{}) (longest time.Duration) {
	seen, since := published.Load(), time.Now()
	for isEnd := false; !isEnd; time.Sleep(time.Millisecond) {
		select {
		case <-end:
			isEnd = true
		default:
		}
		if n := published.Load(); n != seen {
			longest = max(longest, time.Since(since))
			seen, since = n, time.Now()
		}
	}
	return max(longest, time.Since(since))
}

// delayLog is a log that keeps the longest delay before another try.
type delayLog struct {
	slog.Handler
	longest atomic.Int64
}

func (l *delayLog) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "retry_in" {
			l.longest.Store(max(l.longest.Load(), int64(a.Value.Duration())))
		}
		return true
	})
	return l.Handler.Handle(ctx, r)
}

// longestConnect connects again and again until stop is closed, and sends the longest time that it took.
func (b *bundle) longestConnect(stop <-chan struct{}) <-chan time.Duration {
	longest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		defer func() { longest <- most }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			begun := time.Now()
			conn, err := pgx.ConnectConfig(context.Background(), b.pool.Config().ConnConfig)
			if err != nil {
				b.t.Error(err)
				return
			}
			_ = conn.Close(context.Background())
			most = max(most, time.Since(begun))
		}
	}()
	return longest
}

// All connections of the relay to the database are killed twice a second. Whenever it has worked in between, its
// back-off begins anew, so it stands still for no longer than a few connects take.
func TestKilledConnectionsCauseShortStalls(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	pool := openPool(t, named(t, b.pool.Config().ConnString(), "killed-relay"))
	log := &delayLog{Handler: slog.NewTextHandler(t.Output(), nil)}
	var published, advanced, leading atomic.Int64
	b.relay(func(c *outbox.Config) {
		c.DB, c.LeaseTTL, c.Logger = pool, 0, slog.New(log)
		c.Hooks = []outbox.Hook{{
			MessagesPublished: func(_ context.Context, n int) { published.Add(int64(n)) },
			PageAdvanced:      func(context.Context) { advanced.Add(1) },
			LeadershipChanged: func(_ context.Context, is bool) {
				if is {
					leading.Add(1)
				}
			},
		}}
	})
	stop := make(chan struct{})
	produced := b.produce(stop)
	b.await("the relay publishes", func() bool { return published.Load() > 10 })
	connect := b.longestConnect(stop)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for range 15 { // without progress in between, the delay has its maximum after 8
			_, err := b.pool.Exec(context.Background(), `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and application_name = 'killed-relay'`)
			if err != nil {
				t.Error(err)
			}
			time.Sleep(500 * time.Millisecond)
			deadline := time.Now().Add(patience)
			for before := advanced.Load(); advanced.Load() == before; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("the relay did not work for %s after a kill", patience)
					return
				}
			}
		}
	}()
	stall := longestStall(&published, killed)
	close(stop)
	usual, delay := <-connect, time.Duration(log.longest.Load())
	t.Logf("longest stall %s, delay %s, connect %s; %d terms", stall, delay, usual, leading.Load())
	<-produced
	b.awaitPublished()
	b.check()
	if delay == 0 || delay >= outbox.MaxDelay {
		t.Errorf("the longest delay is %s: the relay does not begin anew after it has worked", delay)
	}
	if stall > time.Second+10*usual { // the machine may be busy
		t.Errorf("nothing was published for %s, and a connect took at most %s", stall, usual)
	}
	if leading.Load() != 1 {
		t.Errorf("the relay had the lease %d times, want once", leading.Load())
	}
}

// longLease is the lease of a relay process whose lease must not expire in a test, however slow the machine is.
const longLease = time.Hour

// spawnRelay starts a relay process with the lease longLease, and waits until it leads.
func (b *bundle) spawnRelay() *exec.Cmd {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), relayDatabase+"="+b.pool.Config().ConnString(), relayNATS+"="+b.server.URL(),
		relayTTL+"="+longLease.String())
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	b.await("the relay process leads", func() bool {
		var leads bool
		err := b.pool.QueryRow(b.ctx(), `select exists (
			select from taskledger.lease where name = 'relay' and backend is not null)`).Scan(&leads)
		return err == nil && leads
	})
	return cmd
}

// standby starts a relay with the default lease, beside one that leads.
func (b *bundle) standby(published, leading *atomic.Int64) {
	b.relay(func(c *outbox.Config) {
		c.LeaseTTL = 0
		c.Hooks = []outbox.Hook{{
			MessagesPublished: func(_ context.Context, n int) { published.Add(int64(n)) },
			LeadershipChanged: func(context.Context, bool) { leading.Add(1) },
		}}
	})
}

// When a process is killed, a relay that stands by works long before the lease expires.
func TestKilledRelayIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	cmd := b.spawnRelay()
	var published, leading atomic.Int64
	b.standby(&published, &leading)
	b.enqueue("coupon.send", "order-", 10)
	b.awaitPublished()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	b.enqueue("coupon.send", "later-", 1)
	b.await("the other relay publishes", func() bool { return published.Load() == 1 })
	t.Logf("published %s after the kill, the lease lasts %s", time.Since(killed), longLease)
	b.awaitPublished()
	b.check()
}

// A relay that hangs for less than its lease keeps it.
func TestSlowRelayIsNotReplaced(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	cmd := b.spawnRelay()
	var published, leading atomic.Int64
	b.standby(&published, &leading)
	for i := range 2 {
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(outbox.DefaultLeaseTTL / 2) // a relay that stands by looks at the lease ten times
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		b.enqueue("coupon.send", fmt.Sprintf("order-%d-", i), 10)
		b.awaitPublished()
	}
	if leading.Load() != 0 {
		t.Error("another relay has taken the lease of one that was slow")
	}
	b.check()
}

// A relay keeps its lease, with the reason as a note, while NATS is away; another relay that has no NATS either does
// not take it.
func TestLeaseIsKeptWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var first, second atomic.Int64
	count := func(n *atomic.Int64) func(*outbox.Config) {
		return func(c *outbox.Config) {
			c.LeaseTTL = 2 * time.Second
			c.Hooks = []outbox.Hook{{LeadershipChanged: func(context.Context, bool) { n.Add(1) }}}
		}
	}
	b.relay(count(&first))
	b.await("the first relay leads", func() bool { return first.Load() == 1 })
	b.relay(count(&second))
	b.server.Stop()
	b.enqueue("coupon.send", "order-", 10)
	b.awaitNote("not connected to NATS")
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if l := b.status().Relay; l == nil || !l.Alive || l.Note == "" {
			t.Fatalf("the lease while NATS is away: %+v", l)
		}
	}
	if first.Load() != 1 || second.Load() != 0 {
		t.Errorf("the lease changed hands: %d, %d", first.Load(), second.Load())
	}
	b.restart()
	b.awaitPublished()
	b.await("the note is gone", func() bool { return b.status().Relay.Note == "" })
	b.check()
}

// A relay whose NATS is away alone is replaced by one whose NATS is not.
func TestRelayWithoutNATSIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	other := newBundleOn(t, b.pool, natsserver.Config{})
	var leading atomic.Int64
	short := func(c *outbox.Config) { c.LeaseTTL = 200 * time.Millisecond }
	b.relay(short)
	b.await("the first relay leads", func() bool { return b.status().Relay != nil })
	b.server.Stop()
	b.enqueue("coupon.send", "order-", 1)
	b.awaitNote("not connected to NATS")
	other.relay(short, func(c *outbox.Config) {
		c.Hooks = []outbox.Hook{{LeadershipChanged: func(context.Context, bool) { leading.Add(1) }}}
	})
	b.await("the other relay leads", func() bool { return leading.Load() > 0 })
	other.awaitPublished()
}

// A relay that displaces one holder after the other, because none of them could work yet, waits longer each time. So
// relays that are all slow give each other the time that they need.
func TestSlowRelaysDisplaceEachOtherLessOften(t *testing.T) {
	t.Parallel()
	const ttl = 100 * time.Millisecond
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	l := outbox.NewLease(pool, "impatient", ttl)
	for i := range 4 {
		begun := time.Now() // before the holder begins
		ledgertest.ExecAsOwner(t, pool, `
			insert into taskledger.lease as l (name, holder, alive_until, term, detail)
			values ('relay', 'slow', clock_timestamp() + interval '1 hour', '1 hour',
			        json_build_object('note', 'it begins', 'since', clock_timestamp()))
			    on conflict (name) do update set holder = excluded.holder, since = excluded.since,
			        alive_until = excluded.alive_until, term = excluded.term, detail = excluded.detail`)
		if err := l.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited, least := time.Since(begun), 2*ttl<<i; waited < least {
			t.Errorf("displacement %d came after %v, want at least %v", i+1, waited, least)
		}
	}
}

// Behind a pooler the row has no server process: it would be one of the pooler.
func TestLeaseBehindAPooler(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	claim := lease.RelayClaim{Holder: "gone/1", For: time.Hour, Backend: 1} // not the number of this connection
	if term, err := lease.TakeRelay(t.Context(), pool, claim); err != nil || term == 0 {
		t.Fatal(term, err)
	}
	b := newBundleOn(t, pool, natsserver.Config{})
	var published, leading atomic.Int64
	b.standby(&published, &leading)
	time.Sleep(time.Second) // four looks
	if leading.Load() != 0 {
		t.Error("a holder without a server process was replaced before its lease expired")
	}
}
