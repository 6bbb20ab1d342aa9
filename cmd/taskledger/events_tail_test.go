package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// events --follow shows what is committed after it began, also by a transaction that recorded it before.
func TestEventsFollow(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "reader")
	enqueue := func(db ledger.DB, id string) {
		t.Helper()
		ledgertest.Enqueue(t, db, ledger.Key{Kind: "a", BizID: ledger.BizID(id)}, "")
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	enqueue(tx, "late")
	enqueue(pool, "first")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	exit := make(chan int, 1)
	go func() {
		args := []string{"events", "--follow", "--kind", "a", "--database-url", pool.Config().ConnString()}
		exit <- newApp().Run(ctx, args, strings.NewReader(""), writer, os.Stderr)
		_ = writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("got %q, want %s", lines.Text(), want)
		}
	}
	expect(" a/first version 1 enqueued")
	ledgertest.Enqueue(t, pool, ledger.Key{Kind: "b", BizID: "other"}, "")
	enqueue(pool, "second")
	expect(" a/second version 1 enqueued")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("1 20")
	if !strings.Contains(lines.Text(), "a/late") {
		t.Errorf("got %q, want a/late", lines.Text())
	}
	cancel()
	if code := <-exit; code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// An event that is committed while events --follow begins is shown once, although it is one of the newest and also
// comes.
func TestEventsAreFollowedOnce(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "reader")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	a := newApp()
	a.stdout, a.stderr, a.config.output = writer, os.Stderr, formatJSONL
	enqueue := func(id ledger.BizID) { ledgertest.Enqueue(t, pool, ledger.Key{Kind: "a", BizID: id}, "") }
	db := &beforeNewest{DB: pool, act: func() { enqueue("meanwhile") }}
	done := make(chan error, 1)
	go func() { done <- tailEvents(ctx, a, db, eventsFlags{tail: 10, follow: true}) }()
	lines := bufio.NewScanner(reader)
	for _, want := range []string{"meanwhile", "later"} {
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("got %q, want %s", lines.Text(), want)
		}
		if want == "meanwhile" {
			enqueue("later")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// beforeNewest calls act once, before the newest events are read.
type beforeNewest struct {
	ledger.DB

	act func()
}

func (d *beforeNewest) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if strings.Contains(sql, "newest events before a position") && d.act != nil {
		d.act()
		d.act = nil
	}
	return d.DB.Query(ctx, sql, args...)
}
