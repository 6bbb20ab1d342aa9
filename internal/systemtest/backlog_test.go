package systemtest_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/operator"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// letter is a kind with a backlog.
var letter = ledger.MustKind[struct{}]("letter.send")

var backlogTasks = flag.Int("backlog", 3000, "tasks in the backlog of TestBacklogStopsNoOtherKind")

// smallRelay makes relays whose stream has room for some 500 messages.
func smallRelay(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
	return outbox.New(outbox.Config{
		DB: db, NATS: nc, Logger: log, LeaseTTL: time.Second, CheckEvery: time.Second,
		Stream: outbox.StreamConfig{MaxBytes: 256 << 10},
	})
}

// handles makes workers that call a function for each task of a kind.
func handles(kind ledger.TypedKind[struct{}], call func(job *workers.Job)) newRunner {
	return func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, AckWait: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		return p, workers.Register(p, kind, func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{}) error {
			call(job)
			return insertEffect(ctx, tx, job)
		}, &workers.KindConfig{Slots: 1})
	}
}

// The tasks of one kind are more than the stream can hold, and its only worker has stopped. Tasks of another kind begin
// as usual. When the worker comes back, the tasks begin in the order in which they were enqueued, without an event
// each. A subscriber receives the events of each task in order, also of tasks that were cancelled meanwhile.
func TestBacklogStopsNoOtherKind(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	relay := d.startStoppable("relay", smallRelay)
	d.start("projector", newProjector)
	d.start("reconciler", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		return reconciler.New(reconciler.Config{
			DB: db, NATS: nc, Logger: log, Every: 100 * time.Millisecond, Grace: 100 * time.Millisecond,
		})
	})
	begun := make(chan time.Time, 1)
	d.start("parcels", handles(parcel, func(*workers.Job) { begun <- time.Now() }))
	stopLetters := d.startStoppable("letters", handles(letter, func(*workers.Job) {}))
	js := d.jetStream()
	d.await("the consumer of letters", func() bool {
		_, err := js.Consumer(t.Context(), stream.Name, stream.Durable(letter.Name(), ledger.AllShards))
		return err == nil
	})
	stopLetters()
	events := d.subscribe(js)

	usual := d.latency(begun, "usual")
	d.enqueueMany(letter, *backlogTasks)
	d.await("the relay to publish or withhold the backlog", func() bool {
		s, err := outbox.ReadStatus(t.Context(), d.db, nil, outbox.StreamConfig{})
		return err == nil && s.Waiting == 0 && slices.Equal(s.Withheld, []ledger.Kind{letter.Name()})
	})
	beside := d.latency(begun, "beside")
	t.Logf("commit to begin, median: %s; beside a backlog of %d tasks: %s", usual, *backlogTasks, beside)
	if beside > 3*usual+20*time.Millisecond {
		t.Errorf("a task begins after %s beside a backlog, and after %s without it", beside, usual)
	}

	cancelled := []ledger.BizID{"1000", "1500", ledger.BizID(fmt.Sprint(*backlogTasks - 1))}
	op, err := operator.New(operator.Config{DB: d.db})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range cancelled {
		if _, err := op.Cancel(t.Context(), letter.Key(id), operator.Audit{Actor: "test", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	relay() // the next one continues with what the first one withheld
	d.start("second relay", smallRelay)

	var mu sync.Mutex
	var order []ledger.BizID
	d.start("late letters", handles(letter, func(job *workers.Job) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, job.BizID)
	}))
	d.await("every letter to be sent", func() bool {
		return d.count(`select count(distinct biz_id) from effect where kind = 'letter.send'`) ==
			*backlogTasks-len(cancelled)
	})
	var want []ledger.BizID // by position
	for e, err := range ledger.Read(t.Context(), d.db, 0, 10*(*backlogTasks)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == letter.Name() && e.Version == 1 && !slices.Contains(cancelled, e.BizID) {
			want = append(want, e.BizID)
		}
	}
	mu.Lock()
	if !slices.Equal(order, want) {
		t.Errorf("%d tasks began in another order than that of their enqueueing, or %d of them twice",
			len(want), len(order)-len(want))
	}
	mu.Unlock()
	if n := d.count(`select count(*) from taskledger.event where type in ('released', 'interrupted')`); n > 0 {
		t.Errorf("%d events made tasks available again", n)
	}
	events.expectAll()
}

// startStoppable is start; the result stops the runner, and the test may end without that.
func (d *depot) startStoppable(name string, build newRunner) (stop func()) {
	d.t.Helper()
	nc, err := outbox.Connect(d.nats.URL())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	r, err := build(d.pool(roleOf(name)), nc, slog.New(slog.NewTextHandler(d.t.Output(), nil)).With("runner", name))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := startRun(ctx, r)
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Errorf("%s: %v", name, err)
		}
	})
	d.t.Cleanup(stop)
	return stop
}

// enqueueMany enqueues tasks with the numbers from 0 as their ids.
func (d *depot) enqueueMany(kind ledger.TypedKind[struct{}], n int) {
	d.t.Helper()
	for from := 0; from < n; from += 100 {
		var entries []ledger.Entry
		for i := from; i < min(from+100, n); i++ {
			entries = append(entries, ledger.Entry{Key: kind.Key(ledger.BizID(fmt.Sprint(i)))})
		}
		if _, err := ledger.EnqueueMany(d.t.Context(), d.db, entries); err != nil {
			d.t.Fatal(err)
		}
	}
}

// latency returns the median time from the commit of a parcel to the beginning of its handler.
func (d *depot) latency(begun <-chan time.Time, name string) time.Duration {
	d.t.Helper()
	var all []time.Duration
	for i := range 41 {
		d.enqueue(parcel, ledger.BizID(fmt.Sprintf("%s-%d", name, i)))
		committed := time.Now()
		select {
		case at := <-begun:
			all = append(all, at.Sub(committed))
		case <-time.After(patience):
			d.t.Fatalf("a task does not begin (%s)", name)
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// eventReader receives all events.
type eventReader struct {
	d        *depot
	mu       sync.Mutex
	versions map[ledger.Key]ledger.Version // the highest one received, by task; guarded by mu
	faults   []string                      // guarded by mu
}

// jetStream returns a connection of its own.
func (d *depot) jetStream() jetstream.JetStream {
	d.t.Helper()
	nc, err := outbox.Connect(d.nats.URL())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		d.t.Fatal(err)
	}
	return js
}

// subscribe receives all events through a consumer without a durable name.
func (d *depot) subscribe(js jetstream.JetStream) *eventReader {
	d.t.Helper()
	s := &eventReader{d: d, versions: make(map[ledger.Key]ledger.Version)}
	consumer, err := js.OrderedConsumer(d.t.Context(), stream.Name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		d.t.Fatal(err)
	}
	receiving, err := consumer.Consume(s.receive)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(receiving.Stop)
	return s
}

func (s *eventReader) receive(msg jetstream.Msg) {
	m, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.faults = append(s.faults, err.Error())
		return
	}
	if before := s.versions[m.Key]; m.Version > before+1 {
		s.faults = append(s.faults, fmt.Sprintf("%s appeared after version %d", m.ID(), before))
	}
	s.versions[m.Key] = max(s.versions[m.Key], m.Version)
}

// expectAll waits until every event was received.
func (s *eventReader) expectAll() {
	s.d.t.Helper()
	s.d.await("the subscriber to receive all events", func() bool {
		n := s.d.count(`select count(*) from taskledger.event`)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, version := range s.versions {
			n -= int(version)
		}
		return n == 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) > 0 {
		s.d.t.Errorf("%d faults in the order of events, the first: %s", len(s.faults), s.faults[0])
	}
}
