package outbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// The test binary is a relay process if these are set.
const (
	relayDatabase = "OUTBOX_TEST_DATABASE"
	relayNATS     = "OUTBOX_TEST_NATS"
	relayTTL      = "OUTBOX_TEST_LEASE_TTL"
	relaySmall    = "OUTBOX_TEST_SMALL"  // then its stream is small
	relayFreeze   = "OUTBOX_TEST_FREEZE" // a crash point where it stops itself once
	replaySubject = "OUTBOX_TEST_REPLAY" // then it is a process of a replay

	subscriberTest = "OUTBOX_TEST_SUBSCRIBER" // then it is a subscriber
)

func TestMain(m *testing.M) {
	if os.Getenv(relayDatabase) != "" {
		process := relayProcess
		if os.Getenv(replaySubject) != "" {
			process = replayProcess
		}
		if os.Getenv(subscriberTest) != "" {
			process = subscriberProcess
		}
		if os.Getenv(servedTest) != "" {
			process = servedProcess
		}
		if err := process(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func relayProcess() error {
	pool, err := pgxpool.New(context.Background(), os.Getenv(relayDatabase))
	if err != nil {
		return err
	}
	nc, err := outbox.Connect(os.Getenv(relayNATS))
	if err != nil {
		return err
	}
	c := outbox.Config{DB: pool, NATS: nc, LeaseTTL: 500 * time.Millisecond}
	if d, err := time.ParseDuration(os.Getenv(relayTTL)); err == nil {
		c.LeaseTTL = d
	}
	c.SetPageSize(100)
	if os.Getenv(relaySmall) != "" {
		smallStream(&c)
	}
	if point := os.Getenv(relayFreeze); point != "" {
		fault.Set(point, sync.OnceFunc(freeze))
	}
	r, err := outbox.New(c)
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// freeze stops this process until it gets SIGCONT.
func freeze() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		panic(err)
	}
	<-continued
}

// runKilled runs a relay process that is killed when it passes a crash point for the n-th time.
func (b *bundle) runKilled(point string, n int, environment ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), relayDatabase+"="+b.pool.Config().ConnString(), relayNATS+"="+b.server.URL(),
		fmt.Sprintf("%s=%s:%d", fault.Variable, point, n))
	cmd.Env = append(cmd.Env, environment...)
	output, err := cmd.CombinedOutput()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL || ctx.Err() != nil {
		b.t.Fatalf("the relay process ended with %v, not by SIGKILL at %s: %s", err, point, output)
	}
}

// A relay that is killed leaves a page that is on the stream and not in the cursor, or in neither. The next
// relay recognizes its messages and continues.
func TestRelayKilled(t *testing.T) {
	for _, point := range []string{outbox.FaultPage, outbox.FaultPublished} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.enqueue("coupon.send", "order-", 1000)
			for _, passage := range []int{1, 3, 2} {
				b.runKilled(point, passage)
			}
			var duplicates atomic.Int64
			b.relay(smallPages, func(c *outbox.Config) {
				c.Hooks = []outbox.Hook{&hookFuncs{duplicates: func(n int) { duplicates.Add(int64(n)) }}}
			})
			b.awaitPublished()
			b.check()
			if got := b.generation(); got != 1 {
				t.Errorf("generation %d, want 1: the relay treated a crash as a loss", got)
			}
			if got := duplicates.Load(); point == outbox.FaultPublished && got == 0 {
				t.Error("no duplicates: the page was not published before the kill")
			}
		})
	}
}

// A relay is killed while it publishes messages of a withheld kind. Workers receive each task once and in order,
// because the stream drops what the next relay publishes again.
func TestKilledDuringARefill(t *testing.T) {
	for _, point := range []string{outbox.FaultRefill, outbox.FaultRefilled} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			r := b.relay(smallPages, smallStream)
			work := b.awaitWorkers("coupon.send")
			b.enqueue("coupon.send", "order-", 2000)
			b.awaitPublished()
			r.end()
			if got := b.status().Withheld; len(got) != 1 {
				t.Fatalf("withheld: %v", got)
			}
			want := b.idsOf("coupon.send")
			got := b.takeAll(work)
			for _, passage := range []int{1, 3, 2} {
				b.runKilled(point, passage, relaySmall+"=yes")
				got = append(got, b.takeAll(work)...)
			}
			var lost, duplicates atomic.Int64
			b.relay(smallPages, smallStream, func(c *outbox.Config) {
				c.Hooks = []outbox.Hook{&hookFuncs{
					lost:       func(string) { lost.Add(1) },
					duplicates: func(n int) { duplicates.Add(int64(n)) },
				}}
			})
			b.await("the workers have received all tasks", func() bool {
				got = append(got, b.takeAll(work)...)
				return len(got) >= len(want)
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the delivered messages differ from the ledger: %s", diff)
			}
			if lost.Load() != 0 || b.generation() != 1 {
				t.Errorf("%d losses, generation %d: the relay treated a crash as a loss", lost.Load(), b.generation())
			}
			if point == outbox.FaultRefilled && duplicates.Load() == 0 {
				t.Error("no duplicates: the messages were not published before the kill")
			}
		})
	}
}

// A relay is killed after it has published withheld events, which have message ids, with the next ones of their tasks,
// which have none. Each is on the stream once.
func TestKilledAfterOvertakenEvents(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := b.relay(smallPages, smallStream)
	work := b.awaitWorkers("coupon.send")
	b.enqueue("coupon.send", "order-", 300)
	b.awaitPublished()
	r.end()
	if got := b.status().Withheld; len(got) != 1 {
		t.Fatalf("withheld: %v", got)
	}
	b.takeAll(work)
	b.purge() // so that there is room for all
	for i := 290; i < 300; i++ {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprint("order-", i))}
		b.append(key, 1, ledger.EventCancelled)
	}
	b.runKilled(outbox.FaultPublished, 1, relaySmall+"=yes")
	b.relay(smallPages, smallStream)
	b.awaitPublished()
	b.await("no messages are withheld", func() bool {
		b.takeAll(work)
		return len(b.status().Withheld) == 0
	})
	seen := make(map[string]bool)
	for _, d := range b.deliveries() {
		if seen[d.ID()] {
			t.Errorf("%s is on the stream twice", d.ID())
		}
		seen[d.ID()] = true
	}
}

// takeAll acknowledges the messages that wait, and returns the ids of their events.
func (b *bundle) takeAll(c jetstream.Consumer) (ids []string) {
	b.t.Helper()
	for {
		msgs, err := c.FetchNoWait(1000)
		if err != nil {
			b.t.Fatal(err)
		}
		before := len(ids)
		for msg := range msgs.Messages() {
			m, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
			if err != nil {
				b.t.Fatal(err)
			}
			if err := msg.DoubleAck(b.ctx()); err != nil {
				b.t.Fatal(err)
			}
			ids = append(ids, m.ID())
		}
		if len(ids) == before {
			return ids
		}
	}
}
