package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// RunChild runs a relay or a worker until stdin ends: role is "worker" or "relay".
func RunChild(ctx context.Context, role, name string, stdin io.Reader, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	out := &reporter{encoder: json.NewEncoder(stdout)}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	db, err := pgxpool.New(ctx, os.Getenv(databaseVariable))
	if err != nil {
		return err
	}
	defer db.Close()
	nc, err := outbox.Connect(os.Getenv(natsVariable), nats.Name(name), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	switch role {
	case "worker":
		hooks := []workers.Hook{out.hook()}
		c := workers.Config{DB: db, NATS: nc, Name: name, LeaseTTL: leaseTTL, Logger: log, Hooks: hooks}
		return runWorker(ctx, c, out)
	case "relay":
		relay, err1 := outbox.New(outbox.Config{
			DB: db, NATS: nc, Name: name, LeaseTTL: relayLease, CheckEvery: time.Second, Logger: log,
			Hooks: []outbox.Hook{{MessagesLost: func(context.Context, string) { out.report("lost") }}},
		})
		gives, err2 := dispatcher.New(dispatcher.Config{DB: db, NATS: nc, Logger: log})
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return loop.Together(ctx, relay.Run, gives.Run)
	}
	return fmt.Errorf(`role must be "worker" or "relay", got %q`, role)
}

// reporter writes one line to the parent for each event. Its methods may be called concurrently.
type reporter struct {
	mu      sync.Mutex
	encoder *json.Encoder // guarded by mu
}

func (r *reporter) report(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.encoder.Encode(childReport{Event: event}) // fails after the parent's end; stdin ends then too
}

// hook reports something unusual about an offered task, and an attempt that was fenced off.
func (r *reporter) hook() workers.Hook {
	return workers.Hook{
		Noticed: func(_ context.Context, _ ledger.Kind, n workers.Notice) { r.report(string(n)) },
		AfterAttempt: func(_ context.Context, _ *workers.Job, end workers.AttemptEnd) {
			if end.Outcome == workers.OutcomeFenced {
				r.report("fenced")
			}
		},
	}
}

func runWorker(ctx context.Context, c workers.Config, out *reporter) error {
	freezer := &freezer{out: out}
	freezer.at, _ = strconv.ParseInt(os.Getenv(freezeVariable), 10, 64) // unset: 0
	pool, err := workers.New(c)
	if err != nil {
		return err
	}
	send := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args couponArgs) error {
		if err := askPartner(ctx, tx, job.Key, args); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, couponSQL, string(job.BizID), c.Name, int64(job.Attempt))
		freezer.countCall()
		return err
	}
	if err := pool.Register(workers.Handle(couponKind, send, &workers.KindConfig{Retry: retryPolicy})); err != nil {
		return err
	}
	if err := pool.Register(workers.Handle(tillKind, countTill, nil)); err != nil {
		return err
	}
	return pool.Run(ctx)
}

// retryPolicy permits three attempts within half a second.
var retryPolicy = ledger.RetryPolicy{Ladder: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}}

// askPartner asks the partner for a coupon. The partner refuses args.Refusals times, counted by the
// task's failures in the ledger: a killed attempt does not count.
func askPartner(ctx context.Context, tx pgx.Tx, k ledger.Key, args couponArgs) error {
	if args.Refusals == 0 {
		return nil
	}
	task, err := ledger.Load(ctx, tx, k)
	if err != nil || task.Failures >= args.Refusals {
		return err
	}
	return fmt.Errorf("the partner refuses %s", k.BizID)
}

// freezer stops the process while a handler runs, like the suspension of a machine. The parent wakes
// it after its claim has expired.
type freezer struct {
	at    int64 // call of the handler that freezes; 0: none
	calls atomic.Int64
	out   *reporter
}

// countCall counts a call of the handler, and freezes the process in call number f.at.
func (f *freezer) countCall() {
	if f.calls.Add(1) == f.at {
		f.out.report("freezing")
		freeze()
		time.Sleep(50 * time.Millisecond) // the signal takes effect meanwhile
	}
}
