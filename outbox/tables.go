package outbox

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"

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

// Tables are tables that a subscriber derives from the events. They are made when the subscriber begins, and
// taskledger rebuild tables makes them again. The zero value is a subscriber without tables.
type Tables struct {
	// Schema is the schema of the tables, which belongs to the subscriber alone: a letter and up to 39 letters, digits
	// and underscores, in lower case. Default: the name of the subscriber.
	Schema string
	// Version is the version of DDL and Handle, from 1. If it is higher than the tables' version, the tables are
	// rebuilt next to the old ones and then replace them. Required.
	Version int
	// DDL makes the tables, with their indexes and rights, without naming a schema. It makes nothing else. Required.
	DDL string
}

var (
	validSchema = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	// takenSchemas begin with the name of the built-in projection, whose tables are built in a schema of that name.
	takenSchemas = []string{"tasks", "taskledger", "taskledger_internal", "public", "information_schema"}
)

func (t Tables) isSet() bool { return t != Tables{} }

// faults returns every fault of the tables.
func (t Tables) faults() (faults []error) {
	if !t.isSet() {
		return nil
	}
	if s := t.Schema; !validSchema.MatchString(s) || slices.Contains(takenSchemas, s) || s[:min(3, len(s))] == "pg_" {
		faults = append(faults, fmt.Errorf("Tables.Schema must be a letter and up to 39 letters, digits and "+
			"underscores, in lower case, and no name of PostgreSQL or taskledger, got %q", s))
	}
	if t.Version < 1 || t.Version > 1<<30 {
		faults = append(faults, fmt.Errorf("Tables.Version must be between 1 and %d, got %d", 1<<30, t.Version))
	}
	if t.DDL == "" {
		faults = append(faults, errors.New("Tables.DDL is required"))
	}
	return faults
}

// shape returns a digest of the DDL.
func (t Tables) shape() string {
	if !t.isSet() {
		return ""
	}
	sum := sha256.Sum256([]byte(t.DDL))
	return hex.EncodeToString(sum[:16])
}

// OnFailure decides about an event that Handle fails for. After an outage of the database, the event is handled again.
type OnFailure int

const (
	// Stop stops the subscriber before the event, which is retried. Other subscribers continue.
	Stop OnFailure = iota
	// Park parks the event and all later ones of its task, until an operator retries or discards them. Other tasks
	// continue.
	Park
)

// handling is the handling of events in transactions that also park events, and in the schema of tables: of those in
// use, or of new ones.
type handling struct {
	Subscription

	schema   string // of the tables; "": none
	parkedAs string // the reader under which events are parked
	reader   string // the reader of the subscriber, whose discarded events are left out
	log      *slog.Logger
	// invalidate makes the tables invalid, which contain a part of a page. Nil: they are never used.
	invalidate func(context.Context) error
	// handled is called in the transaction after the events. Nil: not needed.
	handled func(context.Context, pgx.Tx) error
}

// begin returns a transaction whose commit does not wait for the disk: a crash undoes tables and cursor together.
// Settings that Handle makes for its session end with it, because the connection is used for other subscribers.
func (h *handling) begin(ctx context.Context, conn *pgx.Conn) pgx.Tx {
	o := &ledger.TxOptions{ResetSession: true}
	if h.schema != "" {
		o.Settings = map[string]string{"synchronous_commit": "off"}
	}
	return ledger.BeginOn(ctx, conn, o)
}

// apply handles events, except discarded events and events that wait for a parked earlier event of their task.
func (h *handling) apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	if len(events) == 0 {
		return nil
	}
	events, followers, err := h.divide(ctx, tx, events)
	if err != nil {
		return err
	}
	if len(events) > 0 {
		if err := h.call(ctx, tx, events); err != nil {
			return err
		}
	}
	if err := addParked(ctx, tx, h.parkedAs, followers, ""); err != nil || h.handled == nil {
		return err
	}
	return h.handled(ctx, tx)
}

// divide returns the events to handle, and the events that wait for a parked earlier event of their task.
func (h *handling) divide(
	ctx context.Context, tx pgx.Tx, events []ledger.Event,
) (handle, followers []ledger.Event, err error) {
	set, err := readParkedAmong(ctx, tx, h.parkedAs, h.reader, events)
	if err != nil || set.isEmpty() {
		return events, nil, err
	}
	for _, e := range events {
		switch {
		case set.discarded[eventName{e.Key, e.Version}]:
		case set.keys[e.Key]:
			followers = append(followers, e)
		default:
			handle = append(handle, e)
		}
	}
	return handle, followers, nil
}

// call calls Handle in the schema of the tables.
func (h *handling) call(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	upcast, err := h.Upcasts.All(events)
	if err != nil {
		return err
	}
	xid, err := h.use(ctx, tx)
	if err != nil {
		return err
	}
	failure := loop.Guard(func() error { return h.Handle(ctx, userTx{tx}, upcast) })
	if err := checkTransaction(ctx, tx, xid, failure); err != nil {
		return err
	}
	return checkConstraints(ctx, tx)
}

// use makes the schema of the tables the only one in which unqualified tables are found, and returns the id of the
// transaction.
func (h *handling) use(ctx context.Context, tx pgx.Tx) (xid string, err error) {
	if h.schema == "" {
		return readTransactionID(ctx, tx)
	}
	return rebuild.UseSchema(ctx, tx, h.schema)
}

// checkConstraints returns the error of a deferred constraint here, where the event is known, and not at the commit.
func checkConstraints(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, constraintsCheckSQL); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, constraintsDeferSQL)
	return err
}

// park parks an event that cannot be handled. It reports false if the subscriber stops instead.
func (h *handling) park(ctx context.Context, tx pgx.Tx, e ledger.Event, reason error) (bool, error) {
	if h.OnFailure != Park {
		return false, nil
	}
	h.log.WarnContext(ctx, "an event cannot be handled; it is parked with the later ones of its task",
		"subscriber", h.Name, "event", e.ID(), "error", reason)
	return true, addParked(ctx, tx, h.parkedAs, []ledger.Event{e}, rebuild.DescribeFailure(reason))
}

var errUserTx = errors.New("Handle must not commit or roll back: the subscriber commits its place and tables together")

// userTx is the transaction of a page, which Handle may use and not end.
type userTx struct{ pgx.Tx }

// Commit returns an error.
func (userTx) Commit(context.Context) error { return errUserTx }

// Rollback returns an error.
func (userTx) Rollback(context.Context) error { return errUserTx }

// tablesBuild fills new tables of a subscriber.
type tablesBuild struct {
	handling

	pool *pgxpool.Pool
}

// ApplyPage is part of the interface [rebuild.Target].
func (t *tablesBuild) ApplyPage(ctx context.Context, advance func(pgx.Tx) error, events []ledger.Event) error {
	return t.transact(ctx, t.pool, advance, t.wanted(events))
}

// InPage is part of the interface [rebuild.Target].
func (t *tablesBuild) InPage(ctx context.Context, f func(pgx.Tx) error) error {
	return t.inPage(ctx, t.pool, f)
}

// Apply is part of the interface [rebuild.Target].
func (t *tablesBuild) Apply(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	return t.apply(ctx, tx, t.wanted(events))
}

// Make is part of the interface [rebuild.Target].
func (t *tablesBuild) Make(ctx context.Context, tx pgx.Tx) error {
	_, err := rebuild.MakeTables(ctx, tx, "subscriber "+t.Name, t.schema, t.Tables.DDL)
	return err
}

// Clear is part of the interface [rebuild.Target].
func (t *tablesBuild) Clear(ctx context.Context, tx pgx.Tx) error {
	return removeParked(ctx, tx, t.parkedAs, nil)
}

// Swap replaces the subscriber's parked events by the build's.
func (t *tablesBuild) Swap(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) {
	return nil, replaceParked(ctx, tx, t.reader, t.parkedAs)
}

// forgetBuild makes the next build begin again.
func forgetBuild(db *pgxpool.Pool, reader string) func(context.Context) error {
	return func(ctx context.Context) error { return feed.Forget(ctx, db, reader) }
}
