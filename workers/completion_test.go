package workers_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// At an everyday rate successes share transactions, each of which costs PostgreSQL a flush of its log.
func TestCompletionsShareTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.atLeast(func(context.Context, *workers.Job, orderArgs) error { return nil }, nil))
	const tasks = 200
	for i := range tasks {
		b.Enqueue(strconv.Itoa(i))
		time.Sleep(2 * time.Millisecond)
	}
	b.AwaitSucceeded(tasks)
	if n := b.transactions(); n > tasks/2 {
		t.Errorf("%d successes took %d transactions", tasks, n)
	}
}

// The latency of the dispatcher is one setting: outcomes that follow each other gather for five times as long.
func TestLatencyOfTheDispatcherIsThatOfOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const latency = 300 * time.Millisecond
	d := try(dispatcher.New(dispatcher.Config{
		DB: b.As("relay"), NATS: b.Connect(), Latency: latency, Logger: b.Logger(slog.LevelInfo),
	}))(t)
	b.Start(d.Run)
	b.Work(workers.Config{}, b.atLeast(func(context.Context, *workers.Job, orderArgs) error { return nil }, nil))
	b.AwaitState(b.Enqueue("alone"), ledger.StateSucceeded)
	after := b.Enqueue("soon after")
	b.AwaitState(after, ledger.StateSucceeded)
	events := b.History(after)
	if waited := events[1].RecordedAt.Sub(events[0].RecordedAt); waited < 5*latency {
		t.Errorf("the outcome was recorded after %s", waited)
	}
}

// Successes do not gather any longer when there are many of them, when a process waits for outcomes, or when the worker
// stops. Otherwise these would take 5 s.
func TestGatheringEndsEarly(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bundle, w *servicetest.Worker){
		"many": func(b *bundle, _ *servicetest.Worker) { b.EnqueueRound("more", 150) },
		"a process waits": func(b *bundle, _ *servicetest.Worker) {
			if err := feed.AwaitOutcomes(b.Context(), b.As("relay"), time.Minute); err != nil {
				b.T.Fatal(err)
			}
		},
		"the worker stops": func(_ *bundle, w *servicetest.Worker) { w.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			d := try(dispatcher.New(dispatcher.Config{
				DB: b.As("relay"), NATS: b.Connect(), Latency: time.Second, Logger: b.Logger(slog.LevelInfo),
			}))(t)
			b.Start(d.Run)
			returned := make(chan bool, 200)
			w := b.Work(workers.Config{}, b.atLeast(func(context.Context, *workers.Job, orderArgs) error {
				returned <- true
				return nil
			}, nil))
			b.AwaitState(b.Enqueue("alone"), ledger.StateSucceeded)
			<-returned
			k := b.Enqueue("soon after")
			<-returned
			end(b, w)
			b.AwaitState(k, ledger.StateSucceeded)
			events := b.History(k)
			if waited := events[1].RecordedAt.Sub(events[0].RecordedAt); waited >= 5*time.Second {
				t.Errorf("the outcome was recorded after %s", waited)
			}
		})
	}
}

// trusting counts the statements that append after last events as they were read before.
type trusting struct{ n atomic.Int64 }

func (c *trusting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "session_incarnation() = $12") {
		c.n.Add(1)
	}
	return ctx
}

func (*trusting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The success of a task that was offered with its content is recorded without a search for its last event, which costs
// a third of the statement.
func TestSuccessesFollowTheHeadsAsRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	counted := new(trusting)
	c := b.DB.Config()
	c.ConnConfig.Tracer = counted
	db := try(pgxpool.NewWithConfig(b.Context(), c))(t)
	t.Cleanup(db.Close)
	const tasks = 300
	b.EnqueueMany(tasks)
	noop := func(context.Context, *workers.Job, orderArgs) error { return nil }
	b.Work(workers.Config{DB: db, Slots: tasks}, b.atLeast(noop, &workers.KindConfig{Slots: tasks}))
	b.AwaitSucceeded(tasks)
	if counted.n.Load() == 0 {
		t.Error("no statement took the last events as read")
	}
	first := one[int](b, "select count(*)::integer from taskledger.event where version = 2 and attempt = 1")
	if first != tasks {
		t.Errorf("%d successes of first attempts", first)
	}
}
