package alarm_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// statements counts the statements that read waiting tasks.
type statements map[string]int

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	for _, name := range []string{"waiting", "waiting_listed"} {
		if d.SQL == alarm.Statements[name] {
			s[name]++
		}
	}
	return ctx
}

func (s statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A task that has waited for too long is found among the unfinished tasks that the projector lists, beside a long
// history, also if younger tasks or those of other kinds fill pages. Without the list all tasks of the kind are read.
func TestWaitingTasksAreFoundInTheList(t *testing.T) {
	t.Parallel()
	b, h := setup(t), newWebhookServer(t)
	const insert = `
		insert into taskledger.task
		       (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at, lingering)
		select $1, $2 || i, 0, $3::text::taskledger.task_state, null, 1, 0, 0, now() - $5::interval,
		       now() - $5::interval, case when $3::text <> 'succeeded' then i end
		  from generate_series(1, $4::integer) i`
	for _, tasks := range []struct {
		kind, prefix, state string
		count               int
		age                 string
	}{
		{kind: "mail.send", prefix: "done-", state: "succeeded", count: 25_000, age: "3 hours"},
		{kind: "sms.send", prefix: "other-", state: "available", count: 10_500, age: "2 hours"},
		{kind: "mail.send", prefix: "young-", state: "available", count: 100, age: "1 minute"},
		{kind: "mail.send", prefix: "waits-", state: "available", count: 1, age: "1 hour"},
	} {
		ledgertest.ExecAsOwner(t, b.db, insert, tasks.kind, tasks.prefix, tasks.state, tasks.count, tasks.age)
	}
	ledgertest.ExecAsOwner(t, b.db, `
		insert into taskledger.task_count (kind, state, n, value) values ('mail.send', 'available', 1, 101)`)
	isCurrent := false
	for i := 0; !isCurrent; i++ { // a page of the projector has the place of the list
		ledgertest.Enqueue(t, b.db, ledgertest.Key(t, fmt.Sprint("note.write/", i)), "")
		time.Sleep(100 * time.Millisecond)
		const current = "select is_current from taskledger_internal.lingering_is_current"
		err := b.db.QueryRow(t.Context(), current).Scan(&isCurrent)
		if err != nil {
			t.Fatal(err)
		}
	}
	b.stopProjector()

	counted := make(statements)
	pool := b.db.Config()
	pool.ConnConfig.Tracer = counted
	db, err := pgxpool.NewWithConfig(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	look := func() string {
		t.Helper()
		clear(counted)
		c := b.config(h.receiver(fmt.Sprint("hook-", len(h.got()))))
		c.DB = db
		c.Rules.Kinds = []alarm.KindRule{{Kind: "mail.send", WaitingOver: alarm.Duration(30 * time.Minute)}}
		b.pass(b.watcher(c))
		return verified(t, h.got()[len(h.got())-1]).Items[0].Text
	}
	if text := look(); !strings.Contains(text, "waits-1") || counted["waiting"] != 0 || counted["waiting_listed"] != 2 {
		t.Errorf("with the list: %q after %v", text, counted)
	}
	ledgertest.ExecAsOwner(t, b.db, "update taskledger.cursor set mark = null where reader = 'projector'")
	if text := look(); !strings.Contains(text, "waits-1") || counted["waiting"] != 3 || counted["waiting_listed"] != 0 {
		t.Errorf("without the list: %q after %v", text, counted)
	}
}
