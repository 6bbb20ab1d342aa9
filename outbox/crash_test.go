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

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/longtest"
	"github.com/taskledger/taskledger/outbox"
)

// The test binary is a relay process if these are set.
const (
	relayDatabase = "OUTBOX_TEST_DATABASE"
	relayNATS     = "OUTBOX_TEST_NATS"
	relayTTL      = "OUTBOX_TEST_LEASE_TTL"
	relayFreeze   = "OUTBOX_TEST_FREEZE" // a crash point where it stops itself once
	replaySubject = "OUTBOX_TEST_REPLAY" // then it is a process of a replay

	subscriberTest = "OUTBOX_TEST_SUBSCRIBER" // then it is a subscriber
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		fmt.Fprintln(os.Stderr, tableProcess())
		os.Exit(1)
	}
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
	os.Exit(longtest.Run(m))
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
	for _, point := range []string{fault.RelayPage, fault.RelayPublished} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.enqueue("coupon.send", "order-", 1000)
			for _, passage := range []int{1, 3, 2} {
				b.runKilled(point, passage)
			}
			var duplicates atomic.Int64
			b.relay(smallPages, func(c *outbox.Config) {
				c.Hooks = []outbox.Hook{{DuplicatesDropped: func(_ context.Context, n int) {
					duplicates.Add(int64(n))
				}}}
			})
			b.awaitPublished()
			b.check()
			if got := b.generation(); got != 1 {
				t.Errorf("generation %d, want 1: the relay treated a crash as a loss", got)
			}
			if got := duplicates.Load(); point == fault.RelayPublished && got == 0 {
				t.Error("no duplicates: the page was not published before the kill")
			}
		})
	}
}
