package services_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

// A database that sleeps ends all sessions in the middle of the work, as Neon's compute does, and is back later. The
// program goes on by itself: each task, from before and after, has its effect once.
func TestDatabaseThatSleeps(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	address := server.URL(ledgertest.Database)
	const tasks = 20
	begun := make(chan struct{}, 1000)
	e := embed(t, services.EmbedOptions{
		Client: taskledger.Options{DatabaseURL: address}, Dir: t.TempDir(),
	}, func(ctx context.Context, client *taskledger.Client) error {
		if _, err := client.DB.Exec(ctx, "create table effect (biz_id text)"); err != nil {
			return err
		}
		for n := range tasks {
			if _, err := greet.Enqueue(ctx, client.DB, ledger.BizID(fmt.Sprint("before-", n)), "x", nil); err != nil {
				return err
			}
		}
		worker, err := client.Worker(workers.Handle(greet,
			func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ string) error {
				begun <- struct{}{}
				_, err := tx.Exec(ctx, "insert into effect select $1 from pg_sleep(0.01)", string(job.BizID))
				return err
			}, nil))
		if err != nil {
			return err
		}
		return worker.Run(ctx)
	})
	select {
	case <-begun:
	case err := <-e.ended:
		t.Fatalf("Embed has returned: %v\n%s", err, &e.log)
	}
	if err := errors.Join(server.Stop(t.Context()), server.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for n := range tasks {
		if _, err := greet.Enqueue(t.Context(), conn, ledger.BizID(fmt.Sprint("after-", n)), "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var effects, once int
		err := conn.QueryRow(t.Context(), "select count(*), count(distinct biz_id) from effect").Scan(&effects, &once)
		if err != nil {
			t.Fatal(err)
		}
		if effects > once {
			t.Fatalf("%d tasks have %d effects", once, effects)
		}
		if once == 2*tasks {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d tasks have had their effect\n%s", once, 2*tasks, &e.log)
		}
	}
	e.end(t)
}
