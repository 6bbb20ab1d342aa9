// Command partner reports orders to a partner's HTTP API, at most five requests at a time over all workers. The partner
// gets each order at least once, with the task's key as the idempotency key. PARTNER_URL is the partner's address,
// DATABASE_URL the address of a login with the roles producer, worker and operator.
//
//	partner work                     works until it is interrupted
//	partner send A-1 A-2             reports orders
//	partner listen 127.0.0.1:9090    is a partner that accepts everything
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

type order struct {
	Cents int `json:"cents"`
}

var report = ledger.MustKind[order]("partner.call")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "listen" {
		return listen(ctx, args[1])
	}
	client, err := taskledger.Open(ctx, taskledger.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	switch {
	case len(args) == 1 && args[0] == "work":
		return work(ctx, client)
	case len(args) > 1 && args[0] == "send":
		for _, id := range args[1:] {
			if _, err := report.Enqueue(ctx, client.DB, ledger.BizID(id), order{Cents: 500}, nil); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.New("usage: partner work | partner send ORDER... | partner listen HOST:PORT")
}

func work(ctx context.Context, client *taskledger.Client) error {
	five := 5
	limit := ledger.StartLimit{
		Name: string(report.Name()), Kinds: map[ledger.Kind]int{report.Name(): 1}, MaxRunning: &five,
	}
	if err := ledger.SetStartLimit(ctx, client.DB, limit, "partner"); err != nil {
		return err
	}
	worker, err := client.Worker(workers.Handle(report, call, &workers.KindConfig{
		Timeout: 10 * time.Second,
		// Three retries, then the task is dead until an operator releases it.
		Retry: ledger.RetryPolicy{Ladder: []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}},
	}))
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// call is a handler without a transaction: it may run again after a crash.
func call(ctx context.Context, job *workers.Job, o order) error {
	url := os.Getenv("PARTNER_URL") + "/orders/" + string(job.BizID)
	body := strings.NewReader(fmt.Sprintf(`{"cents": %d}`, o.Cents))
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
	if err != nil {
		return workers.Permanent(err)
	}
	request.Header.Set("Idempotency-Key", job.Key.String())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err // retried by the policy
	}
	defer response.Body.Close()
	err = fmt.Errorf("partner: %s", response.Status)
	seconds, noDelay := strconv.Atoi(response.Header.Get("Retry-After"))
	switch status := response.StatusCode; {
	case status < 300:
		return nil
	case noDelay == nil:
		return workers.RetryIn(time.Duration(seconds)*time.Second, err)
	case status >= 400 && status < 500:
		return workers.Permanent(err) // another attempt would get the same answer
	}
	return err
}

func listen(ctx context.Context, address string) error {
	accept := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		log.Printf("the partner got %s", r.Header.Get("Idempotency-Key"))
	})
	server := &http.Server{Addr: address, Handler: accept, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
