package workers_test

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/workers"
)

// slowLine is a connection to NATS that is slow, or stops.
type slowLine struct {
	url   string
	delay time.Duration // of each read

	mu   sync.Mutex
	halt chan struct{} // nil: data flows; otherwise closed when it flows again
}

// slowLine returns a line that lasts until the test ends.
func (b *bundle) slowLine(delay time.Duration) *slowLine {
	b.T.Helper()
	listener := try(net.Listen("tcp", "127.0.0.1:0"))(b.T)
	b.T.Cleanup(func() { _ = listener.Close() })
	address := try(url.Parse(b.Server.URL()))(b.T)
	broker := address.Host
	address.Host = listener.Addr().String()
	l := &slowLine{url: address.String(), delay: delay}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", broker)
			if err != nil {
				_ = near.Close()
				continue
			}
			go l.carry(near, far)
			go l.carry(far, near)
		}
	}()
	return l
}

// carry copies data from one end to the other.
func (l *slowLine) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		time.Sleep(l.delay)
		l.mu.Lock()
		halt := l.halt
		l.mu.Unlock()
		if halt != nil {
			<-halt
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// stop stops the line until goOn is called.
func (l *slowLine) stop() (goOn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	halt := make(chan struct{})
	l.halt = halt
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.halt = nil
		close(halt)
	})
}

// NATS is slow, and in between sends nothing for several times LeaseTTL, on connections that stay open. Another
// worker gets the tasks meanwhile. The workers recover without help, and each task is done once.
func TestSlowNATS(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	l := b.slowLine(50 * time.Millisecond)
	nc := try(stream.Connect(l.url, nats.ReconnectWait(20*time.Millisecond)))(t)
	t.Cleanup(nc.Close)
	var begun sync.Once
	running := make(chan struct{})
	slow := b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		begun.Do(func() { close(running) })
		return insertEffect(ctx, tx, job, args)
	}, nil)
	const tasks = 400
	b.Work(workers.Config{NATS: nc}, byNATS(slow))
	b.EnqueueMany(tasks)
	<-running
	goOn := l.stop()
	t.Cleanup(goOn)
	lease := one[time.Time](b, "select min(alive_until) from taskledger.lease")
	b.Await("three times LeaseTTL to pass", func() bool {
		return one[time.Time](b, "select min(alive_until) from taskledger.lease").After(lease.Add(3 * leaseTTL))
	})
	second := b.Work(workers.Config{}, b.exactly(insertEffect, nil))
	b.Await("the other worker to have something", func() bool {
		return second.KindStatus().Attempts[workers.OutcomeSucceeded] > 0
	})
	goOn()
	b.AwaitSucceeded(tasks)
	b.WantOneEffectEach(tasks)
}
