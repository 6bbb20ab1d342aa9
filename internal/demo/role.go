package demo

import (
	"context"
	"encoding/json"
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

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// RunChild is what a child process does: role is "worker" or "relay". It ends when stdin does.
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
		return runWorker(ctx, db, nc, name, out, log)
	case "relay":
		return runRelay(ctx, db, nc, name, out, log)
	}
	return fmt.Errorf("unknown role %q", role)
}

// reporter writes what happens, a line each.
type reporter struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (r *reporter) say(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.encoder.Encode(report{Event: event}) // the parent may be gone; then stdin ends too
}

// Noticed and AfterAttempt say what the parent counts.
func (r *reporter) Noticed(_ context.Context, _ ledger.Kind, n workers.Notice) { r.say(string(n)) }

// AfterAttempt is a hook, too.
func (r *reporter) AfterAttempt(_ context.Context, _ *workers.Job, end workers.AttemptEnd) {
	if end.Outcome == workers.OutcomeFenced {
		r.say("fenced")
	}
}

func runWorker(ctx context.Context, db *pgxpool.Pool, nc *nats.Conn, name string, out *reporter, log *slog.Logger) error {
	freezer := &freezer{out: out}
	freezer.at, _ = strconv.ParseInt(os.Getenv(freezeVariable), 10, 64) // not set: 0
	pool, err := workers.New(workers.Config{
		DB: db, NATS: nc, Name: name, AckWait: ackWait, Logger: log,
		Hooks: []any{out},
	})
	if err != nil {
		return err
	}
	send := func(ctx context.Context, tx pgx.Tx, job *workers.Job, args couponArgs) error {
		if err := askPartner(ctx, tx, job.Key, args); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, couponSQL, string(job.BizID), name, int64(job.Attempt))
		freezer.pass()
		return err
	}
	if err := workers.Register(pool, couponKind, send, &workers.KindConfig{Retry: retryPolicy}); err != nil {
		return err
	}
	if err := workers.Register(pool, tillKind, countTill, nil); err != nil {
		return err
	}
	return pool.Run(ctx)
}

// retryPolicy lets a coupon be tried three times within half a second.
var retryPolicy = ledger.RetryPolicy{Ladder: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}}

// askPartner asks for a coupon, which is refused as often as its args say. The ledger counts:
// whatever else goes wrong with an attempt does not.
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

// freezer stops the process in mid-handler, as a machine that is suspended does; the parent
// wakes it when it has become a zombie.
type freezer struct {
	at       int64 // passage at which to stop; 0: never
	passages atomic.Int64
	out      *reporter
}

func (f *freezer) pass() {
	if f.passages.Add(1) == f.at {
		f.out.say("freezing")
		freeze()
		time.Sleep(50 * time.Millisecond) // the signal takes effect in here
	}
}

// relayHook reports losses of the stream and parked events.
type relayHook struct {
	outbox.HookDefaults
	out *reporter
}

func (h relayHook) MessagesLost(context.Context, string) { h.out.say("lost") }
func (h relayHook) EventParked(context.Context, string)  { h.out.say("parked") }

func runRelay(ctx context.Context, db *pgxpool.Pool, nc *nats.Conn, name string, out *reporter, log *slog.Logger) error {
	relay, err := outbox.New(outbox.Config{
		DB: db, NATS: nc, Name: name, LeaseTTL: relayLease, CheckEvery: time.Second, Logger: log,
		Hooks: []outbox.Hook{relayHook{out: out}},
	})
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}
