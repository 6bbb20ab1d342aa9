package services_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/services"
	"github.com/taskledger/taskledger/workers"
)

// The rate at which tasks of tenants are enqueued, each in its own transaction by one of 32 connections, and finished
// with an effect in the database: all in one PostgreSQL server, or half of them in each of two, on the same machine.
func BenchmarkTenantsIn(b *testing.B) {
	for _, servers := range []int{1, 2} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			var all []*tenant
			for range servers {
				all = append(all, newTenant(b))
			}
			const producers = 32
			b.ResetTimer()
			var working sync.WaitGroup
			for p := range producers {
				working.Go(func() {
					t := all[p%servers]
					for i := p; i < b.N; i += producers {
						id := ledger.BizID(fmt.Sprint("task-", i))
						if _, err := greet.Enqueue(b.Context(), t.db, id, "x", nil); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			for range b.N {
				<-finished
			}
			working.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.StopTimer()
			for _, t := range all {
				t.stop()
			}
		})
	}
}

// finished has a place for each task of a benchmark that has ended.
var finished = make(chan struct{}, 1000)

// tenant is a PostgreSQL server with a ledger, its services and a worker.
type tenant struct {
	db   *pgxpool.Pool
	stop func()
}

func newTenant(b *testing.B) *tenant {
	b.Helper()
	dir, err := os.MkdirTemp("", "taskledger-bench-") // another user may run the server
	if err = errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		b.Fatal(err)
	}
	server, err := pgserver.Start(b.Context(), pgserver.Config{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan *pgxpool.Pool, 1), make(chan error, 1)
	go func() {
		o := &services.EmbedOptions{Client: taskledger.Options{DatabaseURL: server.URL("postgres")}, Dir: b.TempDir()}
		ended <- services.Embed(ctx, o, func(ctx context.Context, client *taskledger.Client) error {
			_, err := client.DB.Exec(ctx, "create table effect (biz_id text)")
			if err != nil {
				return err
			}
			worker, err := client.Worker(workers.Handle(greet,
				func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ string) error {
					_, err := tx.Exec(ctx, "insert into effect values ($1)", string(job.BizID))
					finished <- struct{}{}
					return err
				}, &workers.KindConfig{Slots: 32}))
			if err != nil {
				return err
			}
			pool, err := pgxpool.New(ctx, server.URL("postgres")+"&pool_max_conns=32")
			if err != nil {
				return err
			}
			defer pool.Close()
			ready <- pool
			return worker.Run(ctx)
		})
	}()
	t := &tenant{stop: func() {
		cancel()
		if err := errors.Join(<-ended, server.Close(), os.RemoveAll(dir)); err != nil {
			b.Error(err)
		}
	}}
	select {
	case t.db = <-ready:
	case err := <-ended:
		b.Fatal(err)
	}
	return t
}
