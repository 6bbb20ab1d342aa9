package systemtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// parcelSlow is a kind whose handler runs until it is cancelled.
var parcelSlow = ledger.MustKind[struct{}]("parcel.slow")

const (
	smallParcels = 40
	largeParcels = 60 // together larger than the stream
)

// room limits the stream so that the large parcels do not fit.
var room = outbox.StreamConfig{MaxBytes: 4 << 20}

// With the rights of docs/nats.conf every service does its work. This includes rare work: a full stream, and tasks that
// are cancelled while they run.
func TestRightsInNATS(t *testing.T) {
	g := newGuarded(t)
	g.startServices()
	g.startOn("first", g.connect("worker"), sends)
	g.startOn("second", g.connect("worker"), sends)
	begun := make(chan struct{}, 1)
	g.startOn("slow", g.connect("worker"), newSlowWorkers(begun))

	g.enqueueSmall()
	g.await("every task to be done", func() bool {
		return g.count(`select count(distinct biz_id) from effect`) == smallParcels
	})
	g.operate(begun)

	consumer := g.subscribe("mails", "ledger.*.succeeded.>")
	for range smallParcels {
		m, err := consumer.Next(jetstream.FetchMaxWait(patience))
		if err == nil {
			err = m.Ack()
		}
		if err != nil {
			t.Fatalf("the subscriber: %v", err)
		}
	}
	g.enqueueLarge()
	g.await("every task to be done beside a subscriber that is away", func() bool {
		return g.count(`select count(distinct biz_id) from effect`) == smallParcels+largeParcels
	})
	if err := consumer.stream.DeleteConsumer(t.Context(), "another"); err == nil {
		t.Error("the subscriber could delete another's consumer")
	}
	g.checkRefused("mails: ", "CONSUMER.DELETE")
}

// guarded is a depot on a NATS server with the configuration of docs/nats.conf.
type guarded struct {
	*depot
	url    string
	keys   string // directory of seeds
	server *server.Server

	mu      sync.Mutex
	refused []string // errors of the connections, each after its user; guarded by mu
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	return newGuardedWith(t, func(*server.Options) {})
}

// newGuardedWith is newGuarded with a changed configuration.
func newGuardedWith(t *testing.T, change func(*server.Options)) *guarded {
	t.Helper()
	keys := t.TempDir()
	users := natsconfig.Config{Subscribers: []string{"mails"}, Served: []string{"orders"}}.Users()
	public, _, err := natsconfig.MakeKeys(keys, users)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range public {
		t.Setenv(natsconfig.Variable(name), key)
	}
	options, err := server.ProcessConfigFile(filepath.Join("..", "..", "docs", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.StoreDir = "127.0.0.1", server.RANDOM_PORT, t.TempDir()
	options.NoSigs, options.NoLog = true, true
	change(options)
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
		t.Fatalf("the NATS server is not ready after %s", patience)
	}
	return &guarded{depot: newLedger(t), url: s.ClientURL(), keys: keys, server: s}
}

// connect connects as one of the users and records every operation that the server refuses.
func (g *guarded) connect(user string) *nats.Conn {
	g.t.Helper()
	record := func(_ *nats.Conn, _ *nats.Subscription, err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.refused = append(g.refused, user+": "+err.Error())
	}
	key, err := nats.NkeyOptionFromSeed(natsconfig.SeedFile(g.keys, user))
	if err != nil {
		g.t.Fatal(err)
	}
	nc, err := outbox.Connect(g.url, key, nats.ErrorHandler(record))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(nc.Close)
	return nc
}

// startServices starts what serve runs, with the rights of the relay.
func (g *guarded) startServices() {
	g.startOn("relay", g.connect("relay"), func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		return outbox.New(outbox.Config{
			DB: db, NATS: nc, Logger: log, LeaseTTL: time.Second, CheckEvery: time.Second, Stream: room,
		})
	})
	g.startOn("projector", g.connect("relay"), newProjector)
	g.startOn("dispatcher", g.connect("relay"), newDispatcher)
}

// newSlowWorkers makes workers whose handler reports progress and waits until it is cancelled.
func newSlowWorkers(begun chan<- struct{}) newRunner {
	return func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		return p, p.Register(workers.Handle(parcelSlow,
			func(ctx context.Context, job *workers.Job, _ struct{}) error {
				err := job.Progress("half")
				begun <- struct{}{}
				<-ctx.Done()
				return errors.Join(err, ctx.Err())
			}, nil))
	}
}

func (g *guarded) enqueueSmall() {
	g.t.Helper()
	for i := range smallParcels {
		if _, err := parcel.Enqueue(g.t.Context(), g.db, ledger.BizID(fmt.Sprint(i)), struct{}{}, nil); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *guarded) enqueueLarge() {
	g.t.Helper()
	args := json.RawMessage(`{"filling": "` + strings.Repeat("x", 100_000) + `"}`)
	for i := range largeParcels {
		key := ledger.Key{Kind: parcel.Name(), BizID: ledger.BizID(fmt.Sprint("large ", i))}
		if _, err := ledger.Enqueue(g.t.Context(), g.db, key, args, nil); err != nil {
			g.t.Fatal(err)
		}
	}
}

// operate does the operator's work: it follows a task's progress, cancels it while it runs, reads
// the relay's status and retires a consumer. A value in begun means that the task runs.
func (g *guarded) operate(begun <-chan struct{}) {
	g.t.Helper()
	nc := g.connect("operator")
	progress, err := nc.SubscribeSync("taskledger.progress.>")
	if err != nil {
		g.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		g.t.Fatal(err)
	}
	if _, err := parcelSlow.Enqueue(g.t.Context(), g.db, "1", struct{}{}, nil); err != nil {
		g.t.Fatal(err)
	}
	if _, err := progress.NextMsg(patience); err != nil {
		g.t.Fatalf("progress: %v", err)
	}
	<-begun
	o := operator.New(g.db)
	key := ledger.Key{Kind: parcelSlow.Name(), BizID: "1"}
	if _, err := o.Cancel(g.t.Context(), key, operator.Audit{Actor: "test"}); err != nil {
		g.t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := relays.ReadStatus(g.t.Context(), g.db, js, room); err != nil {
		g.t.Fatal(err)
	}
}

// subscription is a consumer on the stream, and the stream itself.
type subscription struct {
	jetstream.Consumer
	stream jetstream.Stream
}

// subscribe creates a consumer as the administrator, and binds to it with the rights of a subscriber.
func (g *guarded) subscribe(durable, filter string) subscription {
	g.t.Helper()
	g.addConsumer(durable, filter)
	js, err := jetstream.NewWithDomain(g.connect("mails"), "mails", jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		g.t.Fatal(err)
	}
	s, err := js.Stream(g.t.Context(), "LEDGER")
	if err != nil {
		g.t.Fatal(err)
	}
	c, err := s.Consumer(g.t.Context(), durable)
	if err != nil {
		g.t.Fatal(err)
	}
	return subscription{c, s}
}

// addConsumer creates a consumer as the administrator.
func (g *guarded) addConsumer(durable, filter string) {
	g.t.Helper()
	js, err := jetstream.New(g.connect("admin"))
	if err == nil {
		_, err = js.CreateConsumer(g.t.Context(), "LEDGER", jetstream.ConsumerConfig{
			Durable: durable, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy,
		})
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// checkRefused fails the test unless the server refused exactly one operation, of this user and
// with this text.
func (g *guarded) checkRefused(user, text string) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	expected := 0
	for _, refused := range g.refused {
		if strings.HasPrefix(refused, user) && strings.Contains(refused, text) {
			expected++
			continue
		}
		g.t.Errorf("refused: %s", refused)
	}
	if expected != 1 {
		g.t.Errorf("%s was refused %s %d times, want 1", user, text, expected)
	}
}
