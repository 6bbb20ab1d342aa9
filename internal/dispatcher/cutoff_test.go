package dispatcher_test

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatch"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// begins counts by worker how often the handler of each task has begun.
type begins struct {
	mu    sync.Mutex
	tasks map[ledger.BizID]int
	of    map[string]map[ledger.BizID]bool // by worker
}

func newBegins() *begins {
	return &begins{tasks: map[ledger.BizID]int{}, of: map[string]map[ledger.BizID]bool{}}
}

// handler returns the registration of a handler that counts and does nothing else.
func (c *begins) handler(worker string) func(*workers.Pool) error {
	c.of[worker] = map[ledger.BizID]bool{}
	return func(p *workers.Pool) error {
		return p.Register(workers.Handle(servicetest.Order,
			func(_ context.Context, job *workers.Job, _ servicetest.OrderArgs) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.tasks[job.BizID]++
				c.of[worker][job.BizID] = true
				return nil
			}, nil))
	}
}

// wantOnce fails the test if a task has begun twice.
func (c *begins) wantOnce(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.tasks {
		if n != 1 {
			t.Errorf("%s has begun %d times", id, n)
		}
	}
}

// count returns how many tasks of a round a worker has begun.
func (c *begins) count(worker, round string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.of[worker] {
		if strings.HasPrefix(string(id), round) {
			n++
		}
	}
	return n
}

// natsAt returns a connection to the broker at an address.
func natsAt(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc := servicetest.Try(stream.Connect(url))(t)
	t.Cleanup(nc.Close)
	return nc
}

// A worker lives in the database and is cut off from NATS. Others get its tasks, even if another client repeats its
// reports. When its connection transfers again, it begins nothing of the old offers.
func TestAWorkerCutOffFromNATS(t *testing.T) {
	t.Parallel()
	for name, isRepeated := range map[string]bool{"reports are lost": false, "reports are repeated": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testAWorkerCutOffFromNATS(t, isRepeated)
		})
	}
}

func testAWorkerCutOffFromNATS(t *testing.T, isRepeated bool) {
	b := servicetest.New(t)
	if isRepeated {
		repeatReports(t, b)
	}
	nats, url := servicetest.NewFreezingProxy(t, b.Server.URL())
	c := newBegins()
	b.Work(workers.Config{NATS: natsAt(t, url), LeaseTTL: time.Minute}, c.handler("cut off"))
	b.Work(workers.Config{}, c.handler("other"))
	b.SpawnAs("relay", "dispatcher")
	b.EnqueueRound("before", 100)
	b.AwaitSucceeded(100)
	nats.Freeze()
	b.EnqueueRound("during", 200)
	b.AwaitSucceeded(300)
	if n := c.count("cut off", "during"); n > 0 {
		t.Errorf("the worker has begun %d tasks", n)
	}
	nats.Thaw()
	b.EnqueueRound("after", 100)
	b.AwaitSucceeded(400)
	c.wantOnce(t)
}

// repeatReports sends a copy of each report of a worker every 100 ms until the test ends.
func repeatReports(t *testing.T, b *servicetest.Bundle) {
	t.Helper()
	nc := b.Connect()
	var mu sync.Mutex
	var reports []*nats.Msg
	servicetest.Try(nc.Subscribe(stream.None.AllReports(), func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if len(m.Header) == 0 { // not its own
			reports = append(reports, &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{"Own": {"1"}}})
		}
	}))(t)
	b.Start(func(ctx context.Context) error {
		for loop.Sleep(ctx, 100*time.Millisecond) == nil {
			mu.Lock()
			for _, m := range reports {
				_ = nc.PublishMsg(m)
			}
			mu.Unlock()
		}
		return nil
	})
}

// A worker is cut off only from PostgreSQL. It begins none of the offered tasks, because it could not record an
// outcome, and others get them when its lease has ended.
func TestAWorkerCutOffFromPostgreSQL(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	database, pool := servicetest.NewFreezer(t, b.As(ledgertest.App))
	c := newBegins()
	b.Work(workers.Config{DB: pool, LeaseTTL: 6 * time.Second}, c.handler("cut off"))
	b.Work(workers.Config{}, c.handler("other"))
	b.SpawnAs("relay", "dispatcher")
	b.EnqueueRound("before", 100)
	b.AwaitSucceeded(100)
	database.Freeze()
	time.Sleep(dispatch.Freshness + time.Second) // as long as it trusts its last view
	b.EnqueueRound("during", 200)
	b.AwaitSucceeded(300)
	if n := c.count("cut off", "during"); n > 0 {
		t.Errorf("the worker has begun %d tasks", n)
	}
	database.Thaw()
	b.EnqueueRound("after", 100)
	b.AwaitSucceeded(400)
	c.wantOnce(t)
}

// The active dispatcher is cut off from NATS or from PostgreSQL, and lives. Another one takes over, and the old one,
// when its connections transfer again, gives out nothing twice.
func TestADispatcherCutOff(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"NATS", "PostgreSQL"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			b := servicetest.New(t)
			nats, natsURL := servicetest.NewFreezingProxy(t, b.Server.URL())
			database, databaseURL := servicetest.NewFreezingProxy(t,
				ledgertest.URLAs(t, b.DB.Config().ConnString(), "relay"))
			c := newBegins()
			b.Work(workers.Config{LeaseTTL: time.Minute}, c.handler("a"))
			b.Work(workers.Config{LeaseTTL: time.Minute}, c.handler("b"))
			b.SpawnAt(databaseURL, natsURL, "dispatcher")
			b.EnqueueRound("before", 100)
			b.AwaitSucceeded(100)
			b.SpawnAs("relay", "dispatcher")
			b.EnqueueRound("beside", 100)
			b.AwaitSucceeded(200)
			if from == "NATS" {
				nats.Freeze()
			} else {
				database.Freeze()
			}
			b.EnqueueRound("during", 200)
			b.AwaitSucceeded(400)
			nats.Thaw()
			database.Thaw()
			b.EnqueueRound("after", 200)
			b.AwaitSucceeded(600)
			c.wantOnce(t)
		})
	}
}

// A client with the rights of a worker repeats the messages of workers and dispatcher: whole, cut short and changed,
// and on the subjects of others. Every task is done once.
func TestAHostileClientOfNATS(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	c := newBegins()
	hostile := b.Connect()
	var mu sync.Mutex
	subjects := map[string]bool{}
	servicetest.Try(hostile.Subscribe("taskledger.dispatch.>", func(m *nats.Msg) {
		if len(m.Header) > 0 { // its own
			return
		}
		mu.Lock()
		defer mu.Unlock()
		subjects[m.Subject] = true
		own := nats.Header{"Own": {"1"}}
		changed := bytes.Clone(m.Data)
		changed[len(changed)/2] ^= 1
		for subject := range subjects {
			for _, data := range [][]byte{m.Data, m.Data[:len(m.Data)/2], changed, nil, make([]byte, 64<<10)} {
				_ = hostile.PublishMsg(&nats.Msg{Subject: subject, Data: data, Header: own})
			}
		}
	}))(t)
	b.Work(workers.Config{LeaseTTL: time.Minute}, c.handler("a"))
	b.Work(workers.Config{LeaseTTL: time.Minute}, c.handler("b"))
	b.SpawnAs("relay", "dispatcher")
	// One worker may do a round alone. The rounds end when messages of two workers have reached the hostile client, in
	// both directions.
	heard := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(subjects)
	}
	const most = 100
	rounds := 0
	for rounds < 3 || heard() < 4 {
		if rounds == most {
			t.Fatalf("%d subjects after %d rounds, want both directions of two workers", heard(), most)
		}
		b.EnqueueRound(strconv.Itoa(rounds), 100)
		rounds++
		b.AwaitSucceeded(100 * rounds)
	}
	c.wantOnce(t)
}

// A kind has more waiting tasks than fit in the dispatcher's memory, and its workers are busy. Another kind's tasks
// begin at once.
func TestAKindWithManyTasksDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	const waiting, step = 70_000, 10_000
	many := ledger.MustKind[struct{}]("test.many")
	for from := 0; from < waiting; from += step {
		entries := make([]ledger.Entry, step)
		for i := range entries {
			id := ledger.BizID(strings.Repeat("x", 20) + string(rune('a'+from/step)) + "-" + time.Duration(i).String())
			entries[i] = servicetest.Try(many.Entry(id, struct{}{}, nil))(t)
		}
		servicetest.Try(ledger.EnqueueMany(b.Context(), b.As("producer"), entries))(t)
	}
	b.SpawnAs("relay", "dispatcher")
	begun, release := make(chan bool, 1), make(chan bool)
	b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(many, func(ctx context.Context, _ *workers.Job, _ struct{}) error {
			select {
			case begun <- true:
			default:
			}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		}, &workers.KindConfig{Slots: 1}))
	})
	<-begun
	c := newBegins()
	b.Work(workers.Config{}, c.handler("other"))
	b.EnqueueRound("o", 200)
	b.AwaitSucceeded(200)
	c.wantOnce(t)
	close(release)
}
