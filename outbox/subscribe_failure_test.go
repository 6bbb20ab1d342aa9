package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// logText is a log in memory.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// all returns the whole log.
func (l *logText) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logText) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logText) has(words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		ok := true
		for _, word := range words {
			ok = ok && strings.Contains(line, word)
		}
		if ok {
			return true
		}
	}
	return false
}

// A handler that fails at one event of a page, in any way, passes the events before it, and the log has this event with
// the cure. Once the subscriber is moved past it, it gets the others.
func TestSubscriberNamesTheEventThatFails(t *testing.T) {
	const bad = "task-13"
	isBad := func(events []ledger.Event) bool {
		for _, e := range events {
			if e.BizID == bad {
				return true
			}
		}
		return false
	}
	for name, test := range map[string]struct {
		fail    func(context.Context, pgx.Tx) error
		receive bool
		want    string
	}{
		"Panic": {fail: func(context.Context, pgx.Tx) error { panic("no such mail") }, want: "no such mail"},
		"ReceivePanic": {fail: func(context.Context, pgx.Tx) error { panic("no such mail") }, receive: true,
			want: "no such mail"},
		"ErrorPanics": {fail: func(context.Context, pgx.Tx) error { var e *ledger.TaskError; return e },
			want: "panic"},
		"Goexit": {fail: func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }, want: "runtime.Goexit"},
		"ReceiveGoexit": {fail: func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }, receive: true,
			want: "runtime.Goexit"},
		"UnwrapPanics":     {fail: func(context.Context, pgx.Tx) error { var e *nilError; return e }, want: "panic"},
		"RollbackAndChain": {fail: dropError("rollback and chain"), want: "has ended the transaction"},
		"SwallowedError":   {fail: dropError("select 1/0"), want: "after a statement of it failed"},
		"Rollback":         {fail: dropError("rollback"), want: "has ended the transaction"},
		"LostConnection": {fail: dropError("select pg_terminate_backend(pg_backend_pid())"),
			want: "its connection was lost"},
		"OpenRows": {fail: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, "select 1") //nolint:sqlclosecheck // the rows stay open on purpose
			return err
		}, want: "with open rows"},
		"AtCommit": {fail: dropError("insert into later values (1), (1)"), want: "later_n_key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubscribers(t)
			ledgertest.ExecAsOwner(t, s.pool, `
				create table later (n integer, constraint later_n_key unique (n) deferrable initially deferred);
				grant insert on later to public`)
			s.enqueue("coupon.send", "task-", 30)
			log := &logText{}
			c := outbox.Subscription{Name: "mails", Standby: 50 * time.Millisecond, Idle: 5 * time.Millisecond,
				Logger: slog.New(slog.NewTextHandler(log, nil)),
				Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
					if isBad(events) {
						return test.fail(ctx, tx)
					}
					return toTable(ctx, tx, events)
				}}
			if test.receive {
				c.Handle = nil
				c.Receive = func(ctx context.Context, events []ledger.Event) error {
					if isBad(events) {
						return test.fail(ctx, nil)
					}
					return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return toTable(ctx, tx, events) })
				}
			}
			s.startWith(c)
			position := s.count(`select position from taskledger.event where biz_id = $1`, bad)
			before := s.count(`select count(*) from taskledger.event where position < $1`, position)
			s.await("the log has the event, its error and the cure", func() bool {
				return log.has(test.want,
					fmt.Sprintf("handle the event at position %d (coupon.send/%s/1@", position, bad),
					fmt.Sprintf("taskledger seek subscriber mails --position %d", position))
			})
			if n := s.received(); n != before {
				t.Errorf("%d events are received, want the %d before the one that fails", n, before)
			}
			operator := ledgertest.As(t, s.pool, "operator")
			if err := feed.Seek(t.Context(), operator, "mails", feed.After(ledger.Position(position))); err != nil {
				t.Fatal(err)
			}
			s.wantEach(29)
		})
	}
}

// nilError is an error of which a nil pointer has a text and no cause.
type nilError struct{ cause error }

func (*nilError) Error() string   { return "no cause" }
func (e *nilError) Unwrap() error { return e.cause }

// dropError returns a handler that drops the error of a statement.
func dropError(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, sql)
		return nil
	}
}
