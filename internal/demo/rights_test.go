package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/operator"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// guarded is a NATS server as docs/nats.conf has it.
type guarded struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	refused []string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	for _, user := range []string{"relay", "worker", "operator", "subscriber"} {
		t.Setenv(strings.ToUpper(user)+"_PASSWORD", user+"_secret")
	}
	options, err := server.ProcessConfigFile(filepath.Join("..", "..", "docs", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.StoreDir, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, t.TempDir(), true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server does not begin")
	}
	return &guarded{t: t, url: s.ClientURL()}
}

// as connects as one of the users, and remembers what it may not do.
func (g *guarded) as(user string) *nats.Conn {
	g.t.Helper()
	nc, err := outbox.Connect(g.url, nats.UserInfo(user, user+"_secret"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.refused = append(g.refused, user+": "+err.Error())
	}))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(nc.Close)
	return nc
}

// With the rights in docs/nats.conf everything works, also what happens seldom: a stream that is
// short of room, messages that are handed over, tasks that are cancelled while they run.
func TestRightsInNATS(t *testing.T) {
	g := newGuarded(t)
	d := &depot{t: t, pg: ledgertest.Cluster(t, nil)}
	d.db = d.pool()
	if _, err := d.db.Exec(t.Context(), `create table effect (kind text not null, biz_id text not null)`); err != nil {
		t.Fatal(err)
	}
	begin := func(name, user string, build func(*pgxpool.Pool, *nats.Conn, *slog.Logger) (runner, error)) runner {
		return d.startOn(name, g.as(user), build)
	}
	room := outbox.StreamConfig{MaxBytes: 4 << 20}
	var purged atomic.Bool
	begin("relay", "relay", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		return outbox.New(outbox.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: time.Second, CheckEvery: time.Second, Stream: room,
			Observer: &outbox.Observer{Purged: func(uint64) { purged.Store(true) }}})
	})
	begin("projector", "relay", func(db *pgxpool.Pool, _ *nats.Conn, log *slog.Logger) (runner, error) {
		return projector.New(projector.Config{DB: db, Logger: log})
	})
	begin("reconciler", "relay", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		return reconciler.New(reconciler.Config{DB: db, NATS: nc, Logger: log, Every: 100 * time.Millisecond, Grace: time.Second})
	})
	first := begin("first", "worker", sends).(*workers.Pool)
	begin("second", "worker", sends)
	slow := ledger.MustKind[struct{}]("parcel.slow")
	begun := make(chan struct{}, 1)
	begin("slow", "worker", func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, AckWait: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		return p, workers.RegisterAtLeastOnce(p, slow, func(ctx context.Context, job *workers.Job, _ struct{}) error {
			err := job.Progress("half")
			begun <- struct{}{}
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		}, nil)
	})

	// Half of the tasks look as if the first worker had begun them.
	const n = 40
	for i := range n {
		id := ledger.BizID(fmt.Sprint(i))
		err := pgx.BeginFunc(t.Context(), d.db, func(tx pgx.Tx) error {
			if _, err := parcel.Enqueue(t.Context(), tx, id, struct{}{}, nil); err != nil || i%2 == 0 {
				return err
			}
			_, err := ledger.Append(t.Context(), tx, ledger.AppendRequest{Key: ledger.Key{Kind: parcel.Name(), BizID: id}, Expected: 1, Type: ledger.EventStarted, Actor: first.ID()})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	d.await("every task to be done", func() bool { return d.count(`select count(distinct biz_id) from effect`) == n })

	asOperator := g.as("operator")
	watched, err := asOperator.SubscribeSync("taskledger.progress.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := asOperator.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Enqueue(t.Context(), d.db, "1", struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := watched.NextMsg(patience); err != nil {
		t.Fatalf("progress: %v", err)
	}
	<-begun
	o, err := operator.New(operator.Config{DB: d.db, NATS: asOperator})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Cancel(t.Context(), ledger.Key{Kind: slow.Name(), BizID: "1"}, operator.Audit{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(asOperator)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.ReadStatus(t.Context(), d.db, js, room); err != nil {
		t.Fatal(err)
	}

	if err := workers.Retire(t.Context(), d.db, asOperator, "parcel.none", ledger.AllShards); !errors.Is(err, workers.ErrUnknownConsumer) {
		t.Errorf("retire: %v", err)
	}

	consumer := g.subscribe("mails", "ledger.*.succeeded.>")
	const large = 60 // together more than the stream may hold
	for i := range large {
		key := ledger.Key{Kind: parcel.Name(), BizID: ledger.BizID(fmt.Sprint("large ", i))}
		if _, err := ledger.Enqueue(t.Context(), d.db, key, json.RawMessage(`{"filling": "`+strings.Repeat("x", 100_000)+`"}`), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range n + large {
		m, err := consumer.Next(jetstream.FetchMaxWait(patience))
		if err == nil {
			err = m.Ack()
		}
		if err != nil {
			t.Fatalf("the subscriber: %v", err)
		}
	}
	if !purged.Load() {
		t.Error("the stream was never short of room")
	}
	if err := consumer.stream.DeleteConsumer(t.Context(), "parcel~send"); err == nil {
		t.Error("the subscriber could remove the workers' consumer")
	}
	g.only(t, "subscriber: ", "CONSUMER.DELETE")
}

// subscribe makes a consumer as the subscriber.
func (g *guarded) subscribe(durable, filter string) subscriber {
	g.t.Helper()
	js, err := jetstream.New(g.as("subscriber"), jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		g.t.Fatal(err)
	}
	s, err := js.Stream(g.t.Context(), "LEDGER")
	if err != nil {
		g.t.Fatal(err)
	}
	c, err := s.CreateConsumer(g.t.Context(), jetstream.ConsumerConfig{Durable: durable, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		g.t.Fatal(err)
	}
	return subscriber{c, s}
}

type subscriber struct {
	jetstream.Consumer
	stream jetstream.Stream
}

// only fails for everything that was refused, but for what one user was to be refused, once.
func (g *guarded) only(t *testing.T, user, what string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	expected := 0
	for _, text := range g.refused {
		if strings.HasPrefix(text, user) && strings.Contains(text, what) {
			expected++
			continue
		}
		t.Errorf("refused: %s", text)
	}
	if expected != 1 {
		t.Errorf("%s was refused %s %d times", user, what, expected)
	}
}
