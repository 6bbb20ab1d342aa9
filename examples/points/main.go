// Command points keeps customers' points. A request waits for the result of its task. The tasks of a customer run in
// order, and each changes the balance exactly once, however often the request is repeated. DATABASE_URL is the address
// of a login with the roles producer, worker and subscriber that may create tables.
//
//	points 127.0.0.1:8090    answers POST /customers/ada/points?change=5 with the header Idempotency-Key
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

type move struct {
	Customer string `json:"customer"`
	Points   int    `json:"points"`
}

var change = ledger.MustKind[move]("points.change")

// Two processes may start at once.
const table = `
	select pg_advisory_xact_lock(hashtext('points'));
	create table if not exists points (customer text primary key, balance int not null);`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: points HOST:PORT")
	}
	client, err := taskledger.Open(ctx, taskledger.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.DB.Exec(ctx, table); err != nil {
		return err
	}
	worker, err := client.Worker(workers.Handle(change, apply, nil))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	log.Printf("listening on %s", listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /customers/{customer}/points", func(w http.ResponseWriter, r *http.Request) {
		post(w, r, client)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- server.Serve(listener)
	}()
	err = errors.Join(worker.Run(ctx), server.Shutdown(context.WithoutCancel(ctx)))
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// apply is the handler. The balance and the end of the task commit together.
func apply(ctx context.Context, tx pgx.Tx, job *workers.Job, m move) error {
	var balance int
	err := tx.QueryRow(ctx, `
		insert into points values ($1, $2)
		    on conflict (customer) do update set balance = points.balance + excluded.balance
		returning balance`, m.Customer, m.Points).Scan(&balance)
	if err != nil {
		return err
	}
	if balance < 0 {
		return workers.Permanent(errors.New("not enough points")) // rolls back
	}
	return job.Result(balance)
}

// post enqueues a change and waits for its result. If time is up, the task runs on: the same request gets its result.
func post(w http.ResponseWriter, r *http.Request, client *taskledger.Client) {
	points, err := strconv.Atoi(r.URL.Query().Get("change"))
	id := ledger.BizID(r.Header.Get("Idempotency-Key"))
	if err != nil || id.Validate() != nil {
		http.Error(w, "change must be a number, and Idempotency-Key a text", http.StatusBadRequest)
		return
	}
	m := move{Customer: r.PathValue("customer"), Points: points}
	ctx, stop := context.WithTimeout(r.Context(), 5*time.Second)
	defer stop()
	// A refused change must not stop the customer's line.
	o := &ledger.EnqueueOptions{OrderKey: "customer/" + m.Customer, PassIfDead: true}
	var task ledger.Task
	if _, err = change.Enqueue(ctx, client.DB, id, m, o); err == nil {
		task, err = client.Wait(ctx, change.Key(id))
	}
	var otherArgs *ledger.OtherArgsError
	var refused *ledger.TaskError
	switch {
	case errors.As(err, &otherArgs), errors.As(err, &refused):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, context.DeadlineExceeded):
		w.WriteHeader(http.StatusAccepted)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		balance, err := ledger.ResultOf[int](task)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintln(w, balance)
	}
}
