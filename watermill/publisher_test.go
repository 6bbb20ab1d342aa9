package watermill_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
	"github.com/taskledger/taskledger/watermill"
)

// publisher returns a publisher on db that lives as long as the test.
func publisher(t testing.TB, db ledger.DB) *watermill.Publisher {
	t.Helper()
	p, err := watermill.NewPublisher(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tasks returns the biz_ids of a kind in the order of their positions.
func tasks(t testing.TB, db *pgxpool.Pool, kind string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(),
		`select biz_id from taskledger.event where kind = $1 and version = 1 order by position`, kind)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestPublishCommitsWithTheTransaction(t *testing.T) {
	t.Parallel()
	url := ledgertest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	publish := func(tx ledger.DB, id string) {
		t.Helper()
		if err := publisher(t, tx).Publish("mail.send", message.NewMessage(id, []byte(`{}`))); err != nil {
			t.Fatal(err)
		}
	}
	for _, commit := range []bool{true, false} {
		end := "rollback"
		if commit {
			end = "commit"
		}
		pgxTx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		publish(pgxTx, "pgx-"+end)
		if _, err := pgxTx.Exec(t.Context(), end); err != nil {
			t.Fatal(err)
		}
		_ = pgxTx.Rollback(t.Context()) // gives the connection back
		sqlTx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		publish(stdsql.Wrap(sqlTx), "sql-"+end)
		if commit {
			err = sqlTx.Commit()
		} else {
			err = sqlTx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, want := tasks(t, pool, "mail.send"), []string{"pgx-commit", "sql-commit"}; !slices.Equal(got, want) {
		t.Errorf("tasks %v, want %v", got, want)
	}
}

func TestPublishAgain(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		p := publisher(t, tx)
		for range 2 { // the same message again is no error
			if err := p.Publish("mail.send", message.NewMessage("m-1", []byte("hello"))); err != nil {
				t.Error(err)
			}
		}
		for _, call := range [][]*message.Message{
			{message.NewMessage("m-1", []byte("other"))},
			{
				message.NewMessage("m-2", nil),
				message.NewMessage("m-1", []byte("other")),
				message.NewMessage("m-3", nil),
			},
		} {
			err := p.Publish("mail.send", call...)
			want := ledger.Key{Kind: "mail.send", BizID: "m-1"}
			var other *ledger.OtherArgsError
			if !errors.As(err, &other) || other.Existing.Key != want || other.Existing.State != ledger.StateAvailable {
				t.Errorf("another payload: %v, want a conflict", err)
			}
		}
		return nil // the transaction is still usable
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tasks(t, pool, "mail.send"), []string{"m-1", "m-2", "m-3"}; !slices.Equal(got, want) {
		t.Errorf("tasks %v, want %v", got, want)
	}
}

// Bytes, and the text that is their base64, are different payloads.
func TestPublishTellsBytesFromTheirBase64(t *testing.T) {
	t.Parallel()
	p := publisher(t, ledgertest.Pool(t))
	binary, encoded := []byte{0, 1, 2, 3}, []byte(`"AAECAw=="`)
	for _, test := range []struct {
		id            string
		first, second []byte
	}{
		{id: "m-1", first: binary, second: encoded},
		{id: "m-2", first: encoded, second: binary},
	} {
		if err := p.Publish("mail.send", message.NewMessage(test.id, test.first)); err != nil {
			t.Fatal(err)
		}
		var other *ledger.OtherArgsError
		if err := p.Publish("mail.send", message.NewMessage(test.id, test.second)); !errors.As(err, &other) {
			t.Errorf("%q after %q: %v, want other args", test.second, test.first, err)
		}
	}
}

func TestPublishKeepsTheOrderOfItsMessages(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	var messages []*message.Message
	var want []string
	for i := range 100 {
		id := fmt.Sprintf("%x-%d", (i*7919)%100, i)
		messages, want = append(messages, message.NewMessage(id, nil)), append(want, id)
	}
	if err := publisher(t, pool).Publish("mail.send", messages...); err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(want, tasks(t, pool, "mail.send")); diff != "" {
		t.Error(diff)
	}
}

func TestPublishRefusesBeforeSending(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	good := message.NewMessage("m-1", nil)
	with := func(key, value string) *message.Message {
		m := message.NewMessage("m-2", nil)
		m.Metadata.Set(key, value)
		return m
	}
	for name, test := range map[string]struct {
		topic string
		bad   *message.Message
		field string
		rule  string // a part of it
	}{
		"topic is not a kind":    {topic: "mail/send", bad: good, field: "kind", rule: "must contain only"},
		"topic of watermill-sql": {topic: "mail:send", bad: good, field: "kind", rule: "must contain only"},
		"no topic":               {topic: "", bad: good, field: "kind", rule: "must not be empty"},
		"empty UUID": {
			topic: "mail.send", bad: message.NewMessage("", nil),
			field: "message UUID", rule: "must not be empty where the metadata has no biz_id",
		},
		"UUID is not a biz_id": {
			topic: "mail.send", bad: message.NewMessage("a\nb", nil),
			field: "biz_id", rule: "control characters",
		},
		"no message": {topic: "mail.send", bad: nil, field: "message", rule: "must not be nil"},
		"metadata too long": {
			topic: "mail.send", bad: with("note", strings.Repeat("x", 16<<10)),
			field: "meta", rule: "at most 16384 bytes",
		},
		"metadata is not UTF-8": {
			topic: "mail.send", bad: with("note", "\xff"),
			field: "metadata", rule: "valid UTF-8",
		},
		"metadata with NUL": {
			topic: "mail.send", bad: with("note", "\x00"),
			field: "metadata", rule: "without NUL",
		},
		"payload too long": {
			topic: "mail.send", bad: message.NewMessage("m-3", make([]byte, 256<<10)),
			field: "args", rule: "at most 262144 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				err := publisher(t, tx).Publish(test.topic, good, test.bad)
				var invalid *ledger.InvalidError
				if !errors.As(err, &invalid) || invalid.Field != test.field ||
					!strings.Contains(invalid.Rule, test.rule) {
					t.Errorf("got %v, want field %q and a rule with %q", err, test.field, test.rule)
				}
				_, err = tx.Exec(t.Context(), "select 1")
				return err
			})
			if err != nil {
				t.Errorf("the transaction is aborted: %v", err)
			}
		})
	}
	if got := tasks(t, pool, "mail.send"); len(got) != 0 {
		t.Errorf("published %v, want nothing", got)
	}
	if err := publisher(t, pool).Publish("mail.send"); err != nil {
		t.Errorf("nothing to publish: %v", err)
	}
}

// Publish ends when its context or that of a message is done, although watermill-sql publishes with a
// background context.
func TestPublishHonoursContexts(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	blocker, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(context.Background()) }()
	if err := publisher(t, blocker).Publish("mail.send", message.NewMessage("m-1", nil)); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	for name, start := range map[string]func(ctx context.Context) error{
		"of the publisher": func(ctx context.Context) error {
			p, err := watermill.NewPublisher(ctx, pool, nil)
			if err != nil {
				return err
			}
			return p.Publish("mail.send", message.NewMessage("m-1", nil))
		},
		"of the second message": func(ctx context.Context) error {
			second := message.NewMessageWithContext(ctx, "m-1", nil)
			return publisher(t, pool).Publish("mail.send", message.NewMessage("m-0", nil), second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(50*time.Millisecond, func() { cancel(enough) }) // while it waits for the other transaction
			if err := start(ctx); !errors.Is(err, enough) || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the cause of the cancellation", err)
			}
		})
	}
}

type spanKey struct{}

// tracer collects the span of each context under which an enqueue runs.
type tracer struct {
	mu   sync.Mutex
	seen []any
}

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "insert into taskledger.event") {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.seen = append(tr.seen, ctx.Value(spanKey{}))
	}
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestPublishIsTraced(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(ledgertest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	tr := &tracer{}
	config.ConnConfig.Tracer = tr
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	p, err := watermill.NewPublisher(context.WithValue(t.Context(), spanKey{}, "base"), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	traced := message.NewMessageWithContext(context.WithValue(t.Context(), spanKey{}, "message"), "m-2", nil)
	const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traced.Metadata.Set("traceparent", traceparent)
	traced.Metadata.Set("tracestate", "vendor=1")
	for _, m := range []*message.Message{message.NewMessage("m-1", nil), traced} {
		if err := p.Publish("mail.send", m); err != nil {
			t.Fatal(err)
		}
	}
	if want := []any{"base", "message"}; !slices.Equal(tr.seen, want) {
		t.Errorf("the database saw %v, want %v", tr.seen, want)
	}
	history, err := ledger.History(t.Context(), pool, ledger.Key{Kind: "mail.send", BizID: "m-2"})
	if err != nil {
		t.Fatal(err)
	}
	meta, err := ledger.ParseMeta(history[0].Meta)
	if err != nil || meta.Traceparent != traceparent || meta.Tracestate != "vendor=1" {
		t.Errorf("trace context %q, %q, %v", meta.Traceparent, meta.Tracestate, err)
	}
}

func TestPublisherClose(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	p := publisher(t, pool)
	var publishing sync.WaitGroup
	for i := range 8 {
		publishing.Go(func() {
			for j := 0; ; j++ {
				if err := p.Publish("mail.send", message.NewMessage(fmt.Sprintf("m-%d-%d", i, j), nil)); err != nil {
					if !errors.Is(err, watermill.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for len(tasks(t, pool, "mail.send")) < 10 {
		time.Sleep(time.Millisecond)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	published := len(tasks(t, pool, "mail.send"))
	publishing.Wait()
	if n := len(tasks(t, pool, "mail.send")); n != published {
		t.Errorf("%d messages were published after Close returned", n-published)
	}
}

func TestPublisherNeedsAContextAndADatabase(t *testing.T) {
	t.Parallel()
	var nothing context.Context
	if _, err := watermill.NewPublisher(nothing, nil, nil); err == nil {
		t.Error("no error")
	}
}
