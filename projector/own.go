package projector

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/constraints_check.sql
	constraintsCheckSQL string
	//go:embed sql/constraints_defer.sql
	constraintsDeferSQL string
)

// own is a [Projection] that this process may run.
type own struct {
	follower

	Projection

	db      *pgxpool.Pool
	failing bool // the registry contains an event that stopped the projection
}

func newOwn(c Config, p Projection) *own {
	o := &own{Projection: p, db: c.DB}
	o.follower = follower{
		config: c, reader: reader(p.Name), log: c.Logger.With("projection", p.Name),
		target: &recovering{o.tables(), o},
		begin:  o.prepare, check: o.checkTables, watch: o.watchRequests, resume: o.retryParked,
		stop: stopOwn, wait: o.waitAfter,
	}
	return o
}

// tables returns the tables in use.
func (o *own) tables() ownTables {
	return ownTables{Projection: o.Projection, schema: o.Name, parkedAs: o.Name, db: o.db, log: o.log,
		invalidate: o.invalidate}
}

// stopOwn never ends the runner: if the ledger itself must not be read, the built-in projection does.
func stopOwn(error) error { return nil }

// recovering clears the failure in the registry with the first page that is applied after it.
type recovering struct {
	ownTables

	own *own
}

func (r *recovering) apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	if err := r.ownTables.apply(ctx, tx, events); err != nil || !r.own.failing {
		return err
	}
	return rebuild.ClearFailure(ctx, tx, r.Name)
}

var (
	errAttention = errors.New("an operator has made a request")
	errBuilding  = errors.New("the tables are of another version and are being built")
)

// waitAfter records an event that stops the projection, and returns how long to wait.
func (o *own) waitAfter(err error) (time.Duration, bool) {
	var failure *ApplyError
	var version *VersionError
	switch {
	case errors.Is(err, errAttention):
		return 0, true
	case errors.Is(err, errBuilding):
		return requestsEvery, true
	case errors.As(err, &version):
		o.log.Error("the projection is not run by this program", "error", err)
		return o.config.Standby, true
	case errors.As(err, &failure):
		o.failing = true
		o.log.Error("an event stops the projection; it is tried again", "error", err, "retry_in", o.config.RetryFailed)
		ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
		defer cancel()
		if err := rebuild.RecordFailure(ctx, o.db, o.Name, failure.Event, failure.Err); err != nil {
			o.log.Warn("the failure is not recorded", "error", err)
		}
		return o.config.RetryFailed, true
	}
	return 0, false
}

const (
	recordTimeout = 10 * time.Second
	// requestsEvery is the interval at which a runner looks for operators' requests.
	requestsEvery = time.Second
)

// prepare makes the tables of a new projection. It returns an error if tables of another version exist.
func (o *own) prepare(ctx context.Context) error {
	have, found, err := rebuild.Read(ctx, o.db, o.Name)
	if err != nil {
		return err
	}
	if !found {
		if err := o.create(ctx); err != nil {
			return err
		}
		have, _, err = rebuild.Read(ctx, o.db, o.Name)
		if err != nil {
			return err
		}
	}
	o.failing = have.Failing != nil
	return o.compare(have)
}

// compare returns nil if the registered tables match this program.
func (o *own) compare(have rebuild.State) error {
	switch {
	case have.Version < o.Version:
		return errBuilding
	case have.Version > o.Version, have.Shape != o.shape():
		return &VersionError{Of: o.Name, Tables: have.Version, Program: o.Version}
	}
	return nil
}

// checkTables reads the registry after the feed was opened: another process that replaces the tables later moves the
// cursor.
func (o *own) checkTables(ctx context.Context) error {
	have, found, err := rebuild.Read(ctx, o.db, o.Name)
	if err != nil {
		return err
	}
	if !found {
		return errBuilding
	}
	if err := o.compare(have); err != nil {
		return err
	}
	missing, err := rebuild.MissingTables(ctx, o.db, o.Name)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &TablesError{
			Of: o.Name, Tables: missing, Reason: "missing", Cure: "taskledger rebuild projection " + o.Name,
		}
	}
	return nil
}

// create registers the projection and makes its tables, in one transaction.
func (o *own) create(ctx context.Context) error {
	return pgx.BeginTxFunc(ctx, o.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		isNew, err := rebuild.Register(ctx, tx, o.Name, o.Version, o.shape(), o.OnFailure == Park)
		if err != nil || !isNew {
			return err
		}
		tables, err := rebuild.MakeTables(ctx, tx, o.Name, o.Name, o.DDL)
		if err != nil {
			return err
		}
		return rebuild.SetTables(ctx, tx, o.Name, tables)
	})
}

// watchRequests returns errAttention when the follower must begin again: an operator has asked for a retry.
func (o *own) watchRequests(ctx context.Context) error {
	for {
		if err := loop.Sleep(ctx, loop.Jitter(requestsEvery)); err != nil {
			return err
		}
		asked, err := hasRetries(ctx, o.db, o.Name)
		if err != nil {
			return err
		}
		if asked {
			return errAttention
		}
	}
}

// retryParked applies the parked events that an operator wants to be retried, a task at a time.
func (o *own) retryParked(ctx context.Context, f *feed.Feed) error {
	for {
		events, err := readRetries(ctx, o.db, o.Name)
		if err != nil || len(events) == 0 {
			return err
		}
		if err := o.retryTask(ctx, f, events); err != nil {
			return err
		}
	}
}

// retryTask applies the parked events of a task, or parks them again.
func (o *own) retryTask(ctx context.Context, f *feed.Feed, events []ledger.Event) error {
	key := events[0].Key
	live := o.tables()
	advance := func(tx pgx.Tx) error { return f.Mark(ctx, tx, nil) }
	return inTransaction(ctx, o.db, &live, advance, func(tx pgx.Tx) error {
		failed := events[0]
		failure := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			for _, e := range events {
				failed = e
				if err := live.call(ctx, savepoint, []ledger.Event{e}); err != nil {
					return err
				}
			}
			return nil
		})
		var broken *brokenError
		switch {
		case failure == nil:
			o.log.InfoContext(ctx, "parked events are applied", "task", key.String())
			return removeParked(ctx, tx, o.Name, &key)
		case ctx.Err() != nil || rebuild.IsOutage(failure):
			return failure
		case errors.As(failure, &broken):
			err := errors.Join(live.breaks(ctx, broken), broken)
			return &ApplyError{Projection: o.Name, Event: failed, Err: err}
		}
		o.log.WarnContext(ctx, "a parked event fails again", "event", failed.ID(), "error", failure)
		return parkAgain(ctx, tx, o.Name, failed, rebuild.DescribeFailure(failure))
	})
}

// logger returns a logger that is not nil.
func logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.Default()
	}
	return log
}
