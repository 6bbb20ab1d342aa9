package workers

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/atmostonce"
)

//go:embed sql/reconcile_page.sql
var reconcilePageSQL string

// ReconcilerConfig says how a [Reconciler] works.
type ReconcilerConfig struct {
	// DB is the primary. One of its connections is in use at a time. Required.
	DB *pgxpool.Pool
	// NATS is where the stream is. Required.
	NATS *nats.Conn
	// Every is the least time between two looks at everything; where looking takes long, it is
	// twenty times what it took. Default 2 s.
	Every time.Duration
	// Settle is how long a task must have been available. Default 5 s.
	Settle time.Duration
	// Logger hears of every task that was released. Nil: nobody.
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c ReconcilerConfig) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("reconciler: DB is required"))
	}
	if c.NATS == nil {
		faults = append(faults, errors.New("reconciler: NATS is required"))
	}
	if c.Every < 0 || c.Settle < 0 {
		faults = append(faults, errors.New("reconciler: Every and Settle must not be negative"))
	}
	return errors.Join(faults...)
}

const (
	reconcileShare = 20     // a reconciler looks for one part in so many of the time
	reconcilePage  = 10_000 // tasks that a statement looks at
)

// Reconciler makes tasks available again whose message has gone while nobody works on them:
// acknowledged by somebody who had no business to, expired with the stream's MaxAge, removed.
// Workers acknowledge a message only after its task has moved on, so a task that still stands
// where the message left it, after the message has been acknowledged, is one that nobody will hear of.
//
// What tells it is never age. It is where the message stands in the stream, which the relay's
// cursor bounds from above, compared with what the kind's consumers have acknowledged and with
// where the stream begins. A task whose message still waits is left alone, however long, as is a
// running one while its worker's lease lives. As long as the relay makes up for a loss of the
// whole stream, it does nothing.
//
// A kind without consumers is looked at once its first worker comes. It finds tasks by the
// projection, so it needs a projector at work. Any number may run: an event is appended once.
type Reconciler struct {
	config ReconcilerConfig
	js     jetstream.JetStream
}

// NewReconciler returns a reconciler. It uses nothing yet. It returns the error of
// [ReconcilerConfig.Validate].
func NewReconciler(c ReconcilerConfig) (*Reconciler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Every == 0 {
		c.Every = 2 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	js, err := jetstream.New(c.NATS)
	if err != nil {
		return nil, fmt.Errorf("reconciler: %w", err)
	}
	return &Reconciler{config: c, js: js}, nil
}

// Run looks again and again until ctx is done, and then returns nil. PostgreSQL or NATS being
// away does not end it; it returns an error only if it cannot go on, as [Pool.Run] does.
func (r *Reconciler) Run(ctx context.Context) error {
	return loop.Steps{
		Step: func(ctx context.Context) (time.Duration, error) {
			begun := time.Now()
			err := r.pass(ctx)
			return max(r.config.Every, (reconcileShare-1)*time.Since(begun)), err
		},
		Stop: func(err error) error {
			if final := pgerr.Permanent(err); final != nil {
				return fmt.Errorf("reconciler: %w", final)
			}
			return nil
		},
		Failed: func(ctx context.Context, err error, in time.Duration) {
			r.config.Logger.WarnContext(ctx, "cannot reconcile", "error", err, "in", in)
		},
	}.Run(ctx)
}

// pass looks at everything once.
func (r *Reconciler) pass(ctx context.Context) error {
	if !r.config.NATS.IsConnected() {
		return nats.ErrDisconnected
	}
	nctx, cancel := stream.WhileConnected(ctx, r.config.NATS)
	defer cancel()
	kinds, found, err := r.look(nctx)
	if err != nil || len(kinds) == 0 {
		return err
	}
	known, err := r.bound(ctx, kinds, found)
	if err != nil || !known {
		return err
	}
	for _, k := range kinds {
		if err := r.reconcile(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// reconcile makes the tasks of a kind available again that wait for messages which have gone.
func (r *Reconciler) reconcile(ctx context.Context, k *reconciled) error {
	const again, fresh = 0, 1 // in the order of stream.Consumers
	if k.seen[again] == "" && k.seen[fresh] == "" {
		return nil
	}
	for after := ""; ; {
		lost, reached, err := r.page(ctx, string(k.name), after, reconcilePage, k.seen[fresh], pgquery.Time(k.until[fresh]),
			k.seen[again], pgquery.Time(k.until[again]), r.config.Settle.Milliseconds(), int64(k.shards))
		if err != nil {
			return fmt.Errorf("look for lost tasks of %s: %w", k.name, err)
		}
		for some := range slices.Chunk(lost, maxBatch) {
			if err := r.release(ctx, k.name, some); err != nil {
				return err
			}
		}
		if reached == "" {
			return nil
		}
		after = reached
	}
}

// lostTask waits for a message that has gone.
type lostTask struct {
	id      ledger.BizID
	version ledger.Version
	running bool
}

func (r *Reconciler) page(ctx context.Context, parameters ...any) (lost []lostTask, reached string, err error) {
	rows, err := r.config.DB.Query(ctx, reconcilePageSQL, parameters...)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var id *string
		var version *int32
		var running *bool
		if err := rows.Scan(&reached, &id, &version, &running); err != nil {
			return nil, "", err
		}
		if id != nil {
			lost = append(lost, lostTask{ledger.BizID(*id), ledger.Version(*version), *running})
		}
	}
	return lost, reached, rows.Err()
}

// release makes lost tasks available again, but for those that have moved on meanwhile, or that
// somebody's open transaction has appended to.
func (r *Reconciler) release(ctx context.Context, kind ledger.Kind, lost []lostTask) error {
	requests := make([]ledger.AppendRequest, len(lost))
	for i, t := range lost {
		var err error
		if requests[i], err = r.request(ctx, ledger.Key{Kind: kind, BizID: t.id}, t); err != nil {
			return err
		}
	}
	var failed error
	for i, result := range ledger.AppendEach(ctx, r.config.DB, requests) {
		switch {
		case result.Err == nil:
			q := requests[i]
			r.config.Logger.WarnContext(ctx, "lost task found", "event", string(q.Type), "kind", string(kind), "biz_id", string(q.Key.BizID), "data", string(q.Data))
		case !ledger.IsConflict(result.Err) && !pgerr.Is(result.Err, pgerr.LockNotAvailable) && failed == nil:
			failed = result.Err
		}
	}
	return failed
}

// request is the append by which a lost task is released.
func (r *Reconciler) request(ctx context.Context, k ledger.Key, t lostTask) (ledger.AppendRequest, error) {
	request := ledger.AppendRequest{Key: k, Expected: t.version, Type: ledger.EventReleased, Actor: "reconciler"}
	reason := "its message has gone"
	if t.running {
		history, err := ledger.History(ctx, r.config.DB, k)
		if err != nil {
			return request, err
		}
		request.Type, reason = ledger.EventInterrupted, "its worker and its message have gone"
		if atmostonce.HasStarted(history) {
			request.Type, reason = ledger.EventBuried, atmostonce.ReasonUnknown
		}
	}
	var err error
	request.Data, err = json.Marshal(struct {
		Reason string `json:"reason"`
	}{reason})
	return request, err
}
