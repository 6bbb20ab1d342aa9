package metrics_test

import (
	"context"
	"log"
	"net/http"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/metrics"
)

// A program with a client serves its metrics where it listens.
func ExampleNewProcess() {
	process := metrics.NewProcess()
	client, err := taskledger.Open(context.Background(), taskledger.Options{Metrics: process})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	handler, err := metrics.Handler(process)
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("GET /metrics", handler)
}
