// Package movein_test tests package internal/movein on the outboxes that watermill-sql makes. It is in this module so
// that the modules of watermill-sql stay out of the product's.
package movein_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/movein"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/watermill"
)

func TestStatementsPrepare(t *testing.T) {
	t.Chdir("../../internal/movein") // whose files the test reads
	o := newOldOutbox(t)
	tables := strings.NewReplacer(
		"{messages}", `"watermill_`+oldTopic+`"`,
		"{offsets}", `"watermill_offsets_`+oldTopic+`"`,
	)
	plantest.Prepare(t, o.pool.Config().ConnString(), tables)
}

// oldOutbox is a database with an outbox of watermill-sql beside the ledger.
type oldOutbox struct {
	t    *testing.T
	pool *pgxpool.Pool
	old  wmsql.DefaultPostgreSQLSchema
}

const oldTopic = "order.ship"

func newOldOutbox(t *testing.T) *oldOutbox {
	t.Helper()
	url := ledgertest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	o := &oldOutbox{t: t, pool: pool}
	groups := wmsql.DefaultPostgreSQLOffsetsAdapter{}
	messages, err1 := o.old.SchemaInitializingQueries(wmsql.SchemaInitializingQueriesParams{Topic: oldTopic})
	offsets, err2 := groups.SchemaInitializingQueries(wmsql.OffsetsSchemaInitializingQueriesParams{Topic: oldTopic})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for _, q := range slices.Concat(messages, offsets) {
		if _, err := pool.Exec(t.Context(), q.Query, q.Args...); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// publish publishes as an old producer does, in a transaction that lasts for hold.
func (o *oldOutbox) publish(commit bool, hold time.Duration, messages ...*message.Message) {
	tx, err := o.pool.Begin(o.t.Context())
	if err != nil {
		o.t.Error(err)
		return
	}
	defer func() { _ = tx.Rollback(o.t.Context()) }()
	p, err := wmsql.NewPublisher(wmsql.TxFromPgx(tx), wmsql.PublisherConfig{SchemaAdapter: o.old}, nil)
	if err == nil {
		err = p.Publish(oldTopic, messages...)
	}
	time.Sleep(hold)
	if err == nil && commit {
		err = tx.Commit(o.t.Context())
	}
	if err != nil {
		o.t.Error(err)
	}
}

// handle handles n messages as an old subscriber does.
func (o *oldOutbox) handle(group string, n int) {
	o.t.Helper()
	s, err := wmsql.NewSubscriber(wmsql.BeginnerFromPgx(o.pool), wmsql.SubscriberConfig{
		ConsumerGroup: group, PollInterval: 5 * time.Millisecond,
		SchemaAdapter: o.old, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
	}, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	messages, err := s.Subscribe(o.t.Context(), oldTopic)
	if err != nil {
		o.t.Fatal(err)
	}
	for range n {
		m := <-messages
		m.Ack()
		<-m.Context().Done()
	}
	if err := s.Close(); err != nil {
		o.t.Fatal(err)
	}
}

// publishHere publishes as a producer does that has moved to the ledger.
func (o *oldOutbox) publishHere(m *message.Message) {
	p, err := watermill.NewPublisher(o.t.Context(), o.pool, nil)
	if err == nil {
		err = p.Publish(oldTopic, m)
	}
	if err != nil {
		o.t.Error(err)
	}
}

// tasks returns the biz_ids of a kind in the order of their positions.
func (o *oldOutbox) tasks(kind string) []string {
	o.t.Helper()
	rows, err := o.pool.Query(o.t.Context(),
		`select biz_id from taskledger.event where kind = $1 and version = 1 order by position`, kind)
	if err != nil {
		o.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		o.t.Fatal(err)
	}
	return ids
}

func (o *oldOutbox) importAll(configure ...func(*movein.Config)) movein.Result {
	o.t.Helper()
	c := movein.Config{DB: o.pool, Topic: oldTopic, Batch: 7}
	for _, f := range configure {
		f(&c)
	}
	done, err := movein.Run(o.t.Context(), c)
	if err != nil {
		o.t.Fatal(err)
	}
	return done
}

// The import begins at the place of the old subscriber's group, and moves the group on.
func TestImportTakesTheGroupsPlace(t *testing.T) {
	t.Parallel()
	o := newOldOutbox(t)
	var want []string
	for i := range 20 {
		id := fmt.Sprintf("m-%02d", i)
		m := message.NewMessage(id, []byte(fmt.Sprintf(`{ "n": %d }`, i)))
		m.Metadata.Set("note", id)
		o.publish(i%5 != 4, 0, m) // one in five is rolled back
		if i%5 != 4 {
			want = append(want, id)
		}
	}
	o.handle("shipping", 3)
	done := o.importAll(func(c *movein.Config) { c.Group, c.Kind, c.Actor = "shipping", "parcel.ship", "mover" })
	got := o.tasks("parcel.ship")
	// The last of the three may be imported too: it was acked while the subscriber closed.
	if n := len(got); n != done.Messages || n < len(want)-3 || n > len(want)-2 ||
		!slices.Equal(got, want[len(want)-n:]) {
		t.Errorf("imported %d: %v, want those after the third of %v", done.Messages, got, want)
	}
	history, err := ledger.History(t.Context(), o.pool, ledger.Key{Kind: "parcel.ship", BizID: "m-08"})
	if err != nil {
		t.Fatal(err)
	}
	e := history[0]
	if string(e.Data) != `{ "n": 8 }` || e.Actor != "mover" || !strings.Contains(string(e.Meta), `"note":"m-08"`) {
		t.Errorf("%s %s %s", e.Data, e.Meta, e.Actor)
	}
	again := o.importAll(func(c *movein.Config) { c.Group, c.Kind = "shipping", "parcel.ship" })
	if again.Messages != 0 {
		t.Errorf("imported %d again", again.Messages)
	}
}

// Every committed message becomes one task, and no other does, while old producers write in
// transactions of any length, new ones publish to the ledger, and two imports run that are cut off.
func TestImportBesideEverything(t *testing.T) {
	t.Parallel()
	o := newOldOutbox(t)
	var mu sync.Mutex
	want := make(map[string]bool)
	var producing, importing sync.WaitGroup
	for p := range 6 {
		producing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(p), 7))
			for i := range 60 {
				id := fmt.Sprintf("%d-%d", p, i)
				m := message.NewMessage(id, []byte(`"x"`))
				commit := random.IntN(4) > 0
				switch {
				case p == 0: // a producer that has moved
					o.publishHere(m)
					commit = true
				case p == 1: // a producer that publishes both ways
					o.publishHere(m)
					o.publish(commit, 0, m)
					commit = true
				default:
					o.publish(commit, time.Duration(random.IntN(20))*time.Millisecond, m)
				}
				if commit {
					mu.Lock()
					want[id] = true
					mu.Unlock()
				}
			}
		})
	}
	var produced atomic.Bool
	var interrupted atomic.Int32
	for n := range 2 {
		importing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 8))
			for !produced.Load() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(40))*time.Millisecond)
				_, err := movein.Run(ctx, movein.Config{DB: o.pool, Topic: oldTopic, Batch: 7})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				if err != nil {
					interrupted.Add(1)
				}
				cancel()
			}
		})
	}
	producing.Wait()
	produced.Store(true)
	importing.Wait()
	o.importAll()
	if interrupted.Load() == 0 {
		t.Error("no import was cut off")
	}
	got := make(map[string]bool)
	for _, id := range o.tasks(oldTopic) {
		got[id] = true
	}
	if diff := difference.Of(want, got); diff != "" {
		t.Error(diff)
	}
}

// An import does not end before the messages that an older transaction holds back.
func TestImportWaitsForMessagesHeldBack(t *testing.T) {
	t.Parallel()
	o := newOldOutbox(t)
	blocker, err := o.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(context.Background()) }()
	if _, err := blocker.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	o.publish(true, 0, message.NewMessage("m-1", []byte("{}")))
	ended := make(chan movein.Result, 1)
	go func() { ended <- o.importAll() }()
	select {
	case done := <-ended:
		t.Errorf("it ended with %+v", done)
	case <-time.After(300 * time.Millisecond):
	}
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done := <-ended; done.Messages != 1 {
		t.Errorf("imported %+v", done)
	}
}

func TestImportFollows(t *testing.T) {
	t.Parallel()
	o := newOldOutbox(t)
	ctx, stop := context.WithCancel(t.Context())
	progress := make(chan movein.Result, 10)
	ended := make(chan error, 1)
	go func() {
		_, err := movein.Run(ctx, movein.Config{
			DB: o.pool, Topic: oldTopic, Follow: true,
			Progress: func(r movein.Result) { progress <- r },
		})
		ended <- err
	}()
	for n := range 2 {
		o.publish(true, 0, message.NewMessage(fmt.Sprint(n), []byte("{}")))
		if i := <-progress; i.Messages != n+1 {
			t.Errorf("%+v", i)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestImportBytes(t *testing.T) {
	t.Parallel()
	o := newOldOutbox(t)
	_, err := o.pool.Exec(t.Context(), `alter table "watermill_order.ship" alter payload type bytea using null`)
	if err != nil {
		t.Fatal(err)
	}
	o.publish(true, 0, message.NewMessage("m-1", []byte{0, 0xff}))
	o.importAll(func(c *movein.Config) { c.Schema = "public" })
	history, err := ledger.History(t.Context(), o.pool, ledger.Key{Kind: oldTopic, BizID: "m-1"})
	if err != nil {
		t.Fatal(err)
	}
	if payload, err := history[0].Payload(); err != nil || string(payload) != "\x00\xff" {
		t.Errorf("%q, %v", payload, err)
	}
}

func TestImportStopsAtAnInvalidMessage(t *testing.T) {
	t.Parallel()
	o := newOldOutbox(t)
	o.publish(true, 0, message.NewMessage("m-1", []byte("1")))
	o.publish(true, 0, message.NewMessage("m-1", []byte("1"))) // which the old outbox allows
	o.publish(true, 0, message.NewMessage("m-1", []byte("2")))
	done, err := movein.Run(t.Context(), movein.Config{DB: o.pool, Topic: oldTopic, Batch: 1})
	var failed *movein.MessageError
	var other *ledger.OtherArgsError
	if !errors.As(err, &failed) || failed.Offset != 3 || failed.UUID != "m-1" || !errors.As(err, &other) {
		t.Errorf("%v", err)
	}
	if done != (movein.Result{Messages: 2, Existing: 1}) {
		t.Errorf("%+v", done)
	}
}

func TestConfigIsValidated(t *testing.T) {
	t.Parallel()
	o := newOldOutbox(t)
	for fault, c := range map[string]movein.Config{
		"DB is required":             {Topic: "a"},
		"Topic is required":          {DB: o.pool},
		"name the kind of its tasks": {DB: o.pool, Topic: "a:b"},
		`"b c"`:                      {DB: o.pool, Topic: "a", Kind: "b c"},
		"Batch must be between 1 and 10000, got -1": {DB: o.pool, Topic: "a", Batch: -1},
	} {
		if _, err := movein.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("error %v, want %q", err, fault)
		}
	}
	_, err := movein.Run(t.Context(), movein.Config{DB: o.pool, Topic: "none"})
	if err == nil || !strings.Contains(err.Error(), "no outbox of watermill-sql") {
		t.Errorf("%v", err)
	}
}
