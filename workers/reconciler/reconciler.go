package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loglimit"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// timeShare: a reconciler works for at most one part in timeShare of the time.
const timeShare = 20

// Reconciler makes lost tasks available again, see the package comment.
type Reconciler struct {
	config Config              // constant
	js     jetstream.JetStream // constant
	walks  bool                // tests set it: it does not use the list of lingering tasks

	// Of the goroutine that runs passes:
	limited *loglimit.Logger // for lines that repeat
	woken   map[ledger.Key]woken
}

// New returns a reconciler. It uses neither DB nor NATS yet. It returns the error of [Config.Validate].
func New(c Config) (*Reconciler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Every == 0 {
		c.Every = 2 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	js, err := jetstream.New(c.NATS)
	if err != nil {
		return nil, fmt.Errorf("reconciler: %w", err)
	}
	return &Reconciler{config: c, js: js, woken: make(map[ledger.Key]woken)}, nil
}

// Run reconciles until ctx is done, and then returns nil. It retries while PostgreSQL or NATS is unavailable.
// It returns an error only if retrying is useless: the schema is missing, or the role lacks a right.
func (r *Reconciler) Run(ctx context.Context) error {
	r.limited = loglimit.New()
	defer r.limited.Close()
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			begun := time.Now()
			err := r.pass(ctx)
			return r.pause(time.Since(begun), err), err
		},
		Stop: func(err error) error {
			if final := pgerr.Permanent(err); final != nil {
				return fmt.Errorf("reconciler: %w", final)
			}
			return nil
		},
		Failed: func(_ context.Context, err error, in time.Duration) {
			r.limited.Warn(r.config.Logger, "cannot reconcile; retrying", "error", err, "retry_in", in)
		},
	}.Run(ctx)
}

// pause returns the time until the next pass. A pass that NATS has not answered did no work: its time was a wait.
func (r *Reconciler) pause(elapsed time.Duration, err error) time.Duration {
	var unanswered natsError
	if errors.As(err, &unanswered) {
		return r.config.Every
	}
	return loop.Align(max(r.config.Every, (timeShare-1)*elapsed))
}

// natsError is an error of a request to NATS.
type natsError struct{ error }

func (e natsError) Unwrap() error { return e.error }

// pass checks all kinds once. Without unfinished tasks it asks NATS for nothing.
func (r *Reconciler) pass(ctx context.Context) error {
	if !r.config.NATS.IsConnected() {
		return natsError{nats.ErrDisconnected}
	}
	if _, hasTasks, err := r.readList(ctx); err != nil || !hasTasks {
		return err
	}
	connected, cancel := stream.WhileConnected(ctx, r.config.NATS)
	defer cancel()
	kinds, info, err := r.readFloors(connected)
	if err != nil {
		return natsError{err}
	}
	if len(kinds) == 0 {
		return nil
	}
	isPublished, err := r.readPublished(ctx, kinds, info)
	if err != nil || !isPublished {
		return err
	}
	return r.reconcileAll(ctx, kinds)
}
