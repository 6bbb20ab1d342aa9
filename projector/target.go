package projector

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/abandon"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

// target is the tables of a projection, in use or being built.
type target interface {
	// begin returns the transaction of a page.
	begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error)
	// apply applies events to the tables. It does not commit.
	apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error
	// park parks an event that cannot be applied. It reports false if the projection stops instead.
	park(ctx context.Context, tx pgx.Tx, e ledger.Event, reason error) (bool, error)
	// breaks is called after an event has broken its transaction. If that was committed, the tables are invalid from
	// then on, and breaks returns an error that describes it.
	breaks(ctx context.Context, broken *brokenError) error
	// name is the name of the projection.
	name() string
}

// transact applies events in a transaction whose first step is advance. If they cannot be applied together, it applies
// them one after the other to find the failing event: it returns an [*ApplyError], or parks the event. It does so even
// for an event whose Apply ends the transaction or loses its connection.
func transact(
	ctx context.Context, db *pgxpool.Pool, t target, advance func(pgx.Tx) error, events []ledger.Event,
) error {
	err := inTransaction(ctx, db, t, advance, func(tx pgx.Tx) error {
		if err := t.apply(ctx, tx, events); err != nil {
			return &ApplyError{Projection: t.name(), Err: err}
		}
		return nil
	})
	var failure *ApplyError
	if !errors.As(err, &failure) {
		return err
	}
	var broken *brokenError
	isBroken := errors.As(failure.Err, &broken)
	if t.name() == TasksName || ctx.Err() != nil || !isBroken && rebuild.IsOutage(failure.Err) {
		return failure.Err
	}
	if isBroken {
		if err := t.breaks(ctx, broken); err != nil {
			return &ApplyError{Projection: t.name(), Event: events[0], Err: err}
		}
	}
	return transactEach(ctx, db, t, advance, events)
}

// maxLost is the number of times that the connection is lost in Apply of an event before the event is the cause.
const maxLost = 2

// transactEach is transact that applies one event after the other.
func transactEach(
	ctx context.Context, db *pgxpool.Pool, t target, advance func(pgx.Tx) error, events []ledger.Event,
) error {
	breaking := make(map[ledger.Position]error)
	lost := 0
	for {
		err := inTransaction(ctx, db, t, advance, func(tx pgx.Tx) error {
			return applyEach(ctx, tx, t, events, breaking)
		})
		var failure *ApplyError
		var broken *brokenError
		if ctx.Err() != nil || !errors.As(err, &failure) || !errors.As(failure.Err, &broken) ||
			breaking[failure.Event.Position] != nil {
			return err
		}
		if err := t.breaks(ctx, broken); err != nil {
			return &ApplyError{Projection: t.name(), Event: failure.Event, Err: err}
		}
		if lost++; !broken.isLost || lost >= maxLost {
			breaking[failure.Event.Position], lost = failure.Err, 0
		}
	}
}

func inTransaction(
	ctx context.Context, db *pgxpool.Pool, t target, advance func(pgx.Tx) error, apply func(pgx.Tx) error,
) error {
	return inPage(ctx, db, t, func(tx pgx.Tx) error {
		if err := advance(tx); err != nil {
			return err
		}
		if err := apply(tx); err != nil {
			return err
		}
		fault.Point("projector.applied")
		return nil
	})
}

// inPage calls f in the transaction of a page, and commits it. It returns [loop.ErrAbandoned] if f has not returned in
// time after ctx is done, because an Apply may ignore ctx.
func inPage(ctx context.Context, db *pgxpool.Pool, t target, f func(pgx.Tx) error) error {
	return abandon.WithConn(ctx, db, func(conn *pgx.Conn) error {
		tx, err := t.begin(ctx, conn)
		if err != nil {
			return pgerr.Explain("begin", err)
		}
		defer pgquery.Rollback(ctx, tx) // no effect after the commit
		if err := f(tx); err != nil {
			return err
		}
		return pgerr.Explain("commit", tx.Commit(ctx))
	})
}

// applyEach applies events one after the other, except events that are known to break the transaction. If a different
// event breaks it, the transaction is useless.
func applyEach(
	ctx context.Context, tx pgx.Tx, t target, events []ledger.Event, breaking map[ledger.Position]error,
) error {
	for _, e := range events {
		failure := breaking[e.Position]
		if failure == nil {
			failure = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
				return t.apply(ctx, savepoint, []ledger.Event{e})
			})
			var broken *brokenError
			switch {
			case failure == nil:
				continue
			case ctx.Err() != nil:
				return failure
			case errors.As(failure, &broken):
				return &ApplyError{Projection: t.name(), Event: e, Err: failure}
			case rebuild.IsOutage(failure):
				return failure
			}
		}
		parked, err := t.park(ctx, tx, e, failure)
		if err != nil {
			return err
		}
		if !parked {
			return &ApplyError{Projection: t.name(), Event: e, Err: failure}
		}
	}
	return nil
}

// ownTables are the tables of a [Projection] in a schema.
type ownTables struct {
	Projection

	schema   string
	parkedAs string // the name under which events are parked
	db       ledger.DB
	log      *slog.Logger // reports events that are parked. Default: none.
	// invalidate makes the tables invalid, which contain a part of a page. Nil: they are never used.
	invalidate func(context.Context) error
}

func (t *ownTables) name() string { return t.Name }

// begin returns a transaction whose commit does not wait for the disk: a crash undoes tables and cursor together.
// Settings that Apply makes for its session end with it, because the connection is used for other projections.
func (*ownTables) begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	return ledger.BeginOn(ctx, conn, &ledger.TxOptions{
		Settings: map[string]string{"synchronous_commit": "off"}, ResetSession: true,
	}), nil
}

func (t *ownTables) apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	events, followers, err := t.divide(ctx, tx, events)
	if err != nil {
		return err
	}
	if len(events) > 0 {
		if err := t.call(ctx, tx, events); err != nil {
			return err
		}
	}
	return addParked(ctx, tx, t.parkedAs, followers, "")
}

// divide returns the events to apply, and the events that wait for a parked earlier event of their task.
func (t *ownTables) divide(
	ctx context.Context, tx pgx.Tx, events []ledger.Event,
) (apply, followers []ledger.Event, err error) {
	set, err := readParkedAmong(ctx, tx, t.parkedAs, t.Name, events)
	if err != nil || set.isEmpty() {
		return events, nil, err
	}
	for _, e := range events {
		switch {
		case set.skipped[parkedEvent{e.Key, e.Version}]:
		case set.keys[e.Key]:
			followers = append(followers, e)
		default:
			apply = append(apply, e)
		}
	}
	return apply, followers, nil
}

// call calls Apply in the schema of the tables.
func (t *ownTables) call(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	upcast, err := t.Upcasts.All(events)
	if err != nil {
		return err
	}
	xid, err := rebuild.UseSchema(ctx, tx, t.schema)
	if err != nil {
		return err
	}
	failure := loop.Guard(func() error { return t.Apply(ctx, ownTx{tx}, upcast) })
	if err := checkTransaction(ctx, tx, xid, failure); err != nil {
		return err
	}
	return checkConstraints(ctx, tx)
}

// checkConstraints returns the error of a deferred constraint here, where the event is known, and not at the commit.
func checkConstraints(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, constraintsCheckSQL); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, constraintsDeferSQL)
	return err
}

func (t *ownTables) park(ctx context.Context, tx pgx.Tx, e ledger.Event, reason error) (bool, error) {
	if t.OnFailure != Park {
		return false, nil
	}
	logger(t.log).WarnContext(ctx, "an event cannot be applied; it is parked with the later ones of its task",
		"event", e.ID(), "error", reason)
	return true, addParked(ctx, tx, t.parkedAs, []ledger.Event{e}, rebuild.DescribeFailure(reason))
}

var errOwnTx = errors.New("Apply must not commit or roll back: the runner commits tables and cursor together")

// ownTx is the transaction of a page, which Apply may use and not end.
type ownTx struct{ pgx.Tx }

// Commit returns an error.
func (ownTx) Commit(context.Context) error { return errOwnTx }

// Rollback returns an error.
func (ownTx) Rollback(context.Context) error { return errOwnTx }

// ownBuild are the tables of a [Projection] that are being built.
type ownBuild struct {
	ownTables

	pool *pgxpool.Pool
}

// ApplyPage is part of the interface [rebuild.Target].
func (t *ownBuild) ApplyPage(ctx context.Context, advance func(pgx.Tx) error, events []ledger.Event) error {
	return transact(ctx, t.pool, t, advance, events)
}

// InPage is part of the interface [rebuild.Target].
func (t *ownBuild) InPage(ctx context.Context, f func(pgx.Tx) error) error {
	return inPage(ctx, t.pool, t, f)
}

// Apply is part of the interface [rebuild.Target].
func (t *ownBuild) Apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	return t.apply(ctx, tx, events)
}

// Make is part of the interface [rebuild.Target].
func (t *ownBuild) Make(ctx context.Context, tx pgx.Tx) error {
	_, err := rebuild.MakeTables(ctx, tx, t.Name, t.schema, t.DDL)
	return err
}

// Clear is part of the interface [rebuild.Target].
func (t *ownBuild) Clear(ctx context.Context, tx pgx.Tx) error {
	return removeParked(ctx, tx, t.parkedAs, nil)
}

// Swap replaces the parked events of the projection by those of the build.
func (t *ownBuild) Swap(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) {
	return nil, replaceParked(ctx, tx, t.Name, t.parkedAs)
}
