package metrics_test

import (
	"log"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/metrics"
	"github.com/taskledger/taskledger/workers"
)

// A program with workers serves its metrics where it listens.
func ExampleHandler() {
	var (
		db *pgxpool.Pool
		nc *nats.Conn
	)
	attempts := metrics.NewAttempts()
	pool, err := workers.New(workers.Config{DB: db, NATS: nc, Hooks: []workers.Hook{attempts}})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := metrics.Handler(metrics.NewWorkers(pool), attempts, metrics.NewDatabase(db), metrics.NewNATS(nc))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("GET /metrics", handler)
}
