package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/reserved"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// readers is a ledger with a table to which subscribers add.
type readers struct {
	*bundle

	db *pgxpool.Pool // with the role subscriber
}

func newSubscribers(t *testing.T) *readers {
	t.Helper()
	t.Parallel()
	return subscribersOf(t)
}

// subscribersOf is newSubscribers for a test that is not parallel.
func subscribersOf(t *testing.T) *readers {
	t.Helper()
	pool := ledgertest.Pool(t, ledgertest.App, "operator")
	ledgertest.ExecAsOwner(t, pool, `
		create table received (id bigint generated always as identity, position bigint not null, biz_id text not null,
		                       version integer not null);
		grant select, insert on received to public`)
	return &readers{bundle: &bundle{t: t, pool: pool}, db: ledgertest.As(t, pool, "subscriber")}
}

// toTable inserts events into the table received.
func toTable(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	rows := make([][]any, len(events))
	for i, e := range events {
		rows[i] = []any{int64(e.Position), string(e.BizID), int32(e.Version)}
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"received"}, []string{"position", "biz_id", "version"},
		pgx.CopyFromRows(rows))
	return err
}

// start subscribes until the test ends, or the returned function is called.
func (s *readers) start(c outbox.Subscription) (stop func(), done <-chan error) {
	s.t.Helper()
	c.Standby = 50 * time.Millisecond
	return s.startWith(c)
}

// startWith is start with the Standby of c.
func (s *readers) startWith(c outbox.Subscription) (stop func(), done <-chan error) {
	s.t.Helper()
	if c.DB == nil {
		c.DB = s.db
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(s.t.Output(), nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- outbox.Subscribe(ctx, c); close(ended) }()
	s.t.Cleanup(func() {
		cancel()
		<-ended
	})
	return cancel, ended
}

// count is on connections of another login, because a test ends those of subscribers.
func (s *readers) count(sql string, args ...any) (n int) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.ctx(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *readers) received() int { return s.count(`select count(*) from received`) }

// wantEach checks that the table has each of n events once, and those of a task in their order.
func (s *readers) wantEach(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d events are received", n), func() bool { return s.received() >= n })
	if got := s.count(`select count(distinct position) from received`); got != n || s.received() != n {
		s.t.Errorf("received %d events, %d different ones, want %d", s.received(), got, n)
	}
	if late := s.count(`
		select count(*)
		  from received a join received b on b.biz_id = a.biz_id and b.version < a.version and b.id > a.id`,
	); late > 0 {
		s.t.Errorf("%d events come after later ones of their tasks", late)
	}
}

// subscriberProcess is the test binary as a subscriber.
func subscriberProcess() error {
	pool, err := pgxpool.New(context.Background(), os.Getenv(relayDatabase))
	if err != nil {
		return err
	}
	return outbox.Subscribe(context.Background(), outbox.Subscription{
		DB: pool, Name: "mails", PageSize: 20, Handle: toTable, Standby: 50 * time.Millisecond,
	})
}

// A subscriber that is killed between its effect and the commit, whose connections are ended, and that runs twice, has
// each event once in its table, while other transactions enqueue, finish and stay open.
func TestSubscriberExactlyOnce(t *testing.T) {
	s := newSubscribers(t)
	s.enqueue("coupon.send", "before-", 100)
	for n := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0])
		address := ledgertest.URLAs(t, s.pool.Config().ConnString(), "subscriber")
		cmd.Env = append(os.Environ(), relayDatabase+"="+address, subscriberTest+"=1",
			fmt.Sprintf("%s=%s:%d", fault.Variable, fault.SubscriberHandled, n+1))
		output, err := cmd.CombinedOutput()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || status.Signal() != syscall.SIGKILL || ctx.Err() != nil {
			t.Fatalf("the process ended with %v: %s", err, output)
		}
	}
	if n := s.received(); n != 20 { // the second process has committed one page
		t.Fatalf("%d events are received after two kills, want 20", n)
	}
	open, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(context.Background()) }()
	late := ledger.Key{Kind: "coupon.send", BizID: "late"}
	if _, err := ledger.Enqueue(t.Context(), open, late, nil, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 { // two processes of one name
		s.start(outbox.Subscription{Name: "mails", PageSize: 7, Handle: toTable, Idle: 5 * time.Millisecond})
	}
	for i := range 30 {
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(fmt.Sprintf("task-%d", i))}
		if _, err := ledger.Enqueue(t.Context(), s.pool, key, nil, nil); err != nil {
			t.Fatal(err)
		}
		s.append(key, 1, ledger.EventStarted)
		s.append(key, 2, ledger.EventSucceeded)
		if i%10 == 5 {
			ledgertest.ExecAsOwner(t, s.pool, `
				select pg_terminate_backend(pid) from pg_stat_activity
				 where datname = current_database() and usename = $1`, s.db.Config().ConnConfig.User)
		}
	}
	s.wantEach(190)
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantEach(191)
}

// The errors of a handler delay its subscriber alone: nothing of its transaction is kept, and the events come again.
func TestSubscriberHandlerFails(t *testing.T) {
	s := newSubscribers(t)
	s.enqueue("coupon.send", "a-", 50)
	var calls atomic.Int64
	s.start(outbox.Subscription{Name: "broken", Receive: func(context.Context, []ledger.Event) error {
		calls.Add(1)
		return errors.New("no mail server")
	}})
	var failures atomic.Int64
	s.start(outbox.Subscription{Name: "mails", Handle: func(ctx context.Context, tx pgx.Tx, e []ledger.Event) error {
		if err := toTable(ctx, tx, e); err != nil || failures.Add(1) > 3 {
			return err
		}
		return errors.New("not yet")
	}})
	s.wantEach(50)
	s.await("the broken one is called again", func() bool { return calls.Load() > 1 })
	all, err := feed.Subscribers(t.Context(), s.db, "broken")
	if err != nil || len(all) != 1 || all[0].Lag != 50 {
		t.Errorf("the broken one: %+v, %v", all, err)
	}
}

// Of the events, a subscriber gets those of its kinds and types, and by default no bookkeeping. It begins at its
// From.
func TestSubscriberFilters(t *testing.T) {
	s := newSubscribers(t)
	s.enqueue("coupon.send", "a-", 3)
	s.enqueue("mail.send", "b-", 3)
	record := ledger.Key{Kind: "taskledger.operation", BizID: "1"}
	operator := ledgertest.As(t, s.pool, "operator")
	if _, err := ledger.Enqueue(reserved.Allow(t.Context()), operator, record, nil, nil); err != nil {
		t.Fatal(err)
	}
	s.append(ledger.Key{Kind: "mail.send", BizID: "b-1"}, 1, ledger.EventSucceeded)
	received := make(map[string]*atomic.Int64)
	for name, c := range map[string]outbox.Subscription{
		"all":    {},
		"kind":   {Kinds: []ledger.Kind{"mail.send"}},
		"type":   {Types: []ledger.EventType{ledger.EventSucceeded}},
		"own":    {Kinds: []ledger.Kind{"taskledger.operation"}},
		"now":    {From: outbox.StartNow()},
		"marker": {From: outbox.Start{}},
	} {
		var n atomic.Int64
		received[name] = &n
		c.Name = name
		c.Receive = func(_ context.Context, events []ledger.Event) error {
			n.Add(int64(len(events)))
			return nil
		}
		s.start(c)
	}
	s.await("all have begun", func() bool { return s.count(`select count(*) from taskledger.subscribers`) == 6 })
	s.enqueue("coupon.send", "c-", 1)
	want := map[string]int64{"all": 8, "kind": 4, "type": 1, "own": 1, "now": 1, "marker": 8}
	for name, n := range want {
		s.await(fmt.Sprintf("%s has %d events", name, n), func() bool { return received[name].Load() >= n })
	}
	s.await("nothing is left", func() bool {
		return s.count(`
			select count(*)
			  from taskledger.subscribers s, taskledger_internal.feed_lag('subscriber/' || s.name, 9) l
			 where l.events > 0`) == 0
	})
	for name, n := range want {
		if got := received[name].Load(); got != n {
			t.Errorf("%s has %d events, want %d", name, got, n)
		}
	}
}

// A running subscriber is paused, moved and removed from outside.
func TestSubscriberIsOperated(t *testing.T) {
	s := newSubscribers(t)
	operator := ledgertest.As(t, s.pool, "operator")
	s.enqueue("coupon.send", "a-", 3)
	_, ended := s.start(outbox.Subscription{Name: "mails", Handle: toTable, Idle: 5 * time.Millisecond})
	s.wantEach(3)
	if _, err := feed.Pause(t.Context(), operator, "mails", true); err != nil {
		t.Fatal(err)
	}
	s.enqueue("coupon.send", "b-", 2)
	s.await("it is behind", func() bool {
		all, err := feed.Subscribers(t.Context(), s.db, "mails")
		return err == nil && all[0].Lag == 2
	})
	if n := s.received(); n != 3 {
		t.Errorf("a paused subscriber has received %d events, want 3", n)
	}
	if _, err := feed.Pause(t.Context(), operator, "mails", false); err != nil {
		t.Fatal(err)
	}
	s.wantEach(5)
	if err := feed.Seek(t.Context(), operator, "mails", feed.After(0)); err != nil {
		t.Fatal(err)
	}
	s.enqueue("coupon.send", "c-", 1) // an idle process finds that it was moved at its next page
	s.await("the past is received again", func() bool { return s.received() == 5+6 })
	if _, err := feed.Remove(t.Context(), operator, "mails"); err != nil {
		t.Fatal(err)
	}
	s.enqueue("coupon.send", "d-", 1)
	select {
	case err := <-ended:
		if !errors.Is(err, outbox.ErrSubscriberRemoved) {
			t.Errorf("a removed subscriber ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("a removed subscriber did not end")
	}
}

func TestSubscriptionValidate(t *testing.T) {
	t.Parallel()
	err := outbox.Subscription{
		Name: "a b", Kinds: []ledger.Kind{"*"}, Types: []ledger.EventType{"lost"}, PageSize: -1,
	}.Validate()
	var invalid *ledger.InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("%v", err)
	}
	if err := outbox.Subscribe(t.Context(), outbox.Subscription{}); err == nil {
		t.Error("an empty subscription is valid")
	}
}
