package taskledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgpool"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// The connections to PostgreSQL of one process.
const (
	// ProducerConns is the pool of a producer: transactions that run at once.
	ProducerConns = 8
	// WorkerConns is how many a worker uses beside one for each handler that runs.
	WorkerConns = 6
)

// Options are the options of [Open].
type Options struct {
	// DatabaseURL is the address of the primary. Default: the environment variable DATABASE_URL.
	DatabaseURL string
	// NATSURL is the address of NATS, as the user worker. Default: the environment variable NATS_URL, else the server
	// that taskledger serve runs for the database.
	NATSURL string
	// NATSOptions are added to those of the connection to NATS.
	NATSOptions []nats.Option
	// Slots is how many handlers run at once in this process: the sum of the slots of its kinds. Default: 0, for a
	// producer, which needs no NATS.
	Slots int
	// Logger logs when the connection to NATS is made, lost and restored, and why it fails. Default: [slog.Default].
	Logger *slog.Logger
	// Name names the connections in PostgreSQL (application_name) and NATS. Default: taskledger.
	Name string
}

// Client has the connections of a producer or a worker.
type Client struct {
	DB   *pgxpool.Pool
	NATS *nats.Conn // nil for a producer
}

// Open connects a producer or a worker. The pool has [ProducerConns] connections, or one for each slot and
// [WorkerConns], unless the address has pool_max_conns. The connection to NATS reconnects forever. PostgreSQL must
// answer; NATS may be unavailable at first.
//
// Errors: [ledger.ErrUnavailable] if PostgreSQL does not answer, [*ledger.InvalidError] if an option or an address is
// invalid.
func Open(ctx context.Context, o Options) (*Client, error) {
	o = o.withDefaults()
	if o.Slots < 0 {
		return nil, &ledger.InvalidError{Field: "Slots", Value: fmt.Sprint(o.Slots), Rule: "must be at least 0"}
	}
	conns := ProducerConns
	if o.Slots > 0 {
		conns = o.Slots + WorkerConns
	}
	db, err := openPool(ctx, o, conns)
	if err != nil {
		return nil, err
	}
	c := &Client{DB: db}
	if o.Slots > 0 {
		options := append([]nats.Option{nats.Name(o.Name), nats.RetryOnFailedConnect(true)},
			natsclient.Logging(o.Logger.With("service", "nats"), connectReason)...)
		options = append(options, o.NATSOptions...)
		if o.NATSURL == "" {
			c.NATS, err = natsclient.Connect(db, natsconfig.Worker, options...)
		} else {
			c.NATS, err = stream.Connect(o.NATSURL, options...)
		}
		if err != nil {
			db.Close()
			return nil, err
		}
	}
	return c, nil
}

// CloseTimeout is how long [Client.Close] waits.
const CloseTimeout = 5 * time.Second

// Close closes the connections. It waits until those to PostgreSQL are released, but at most [CloseTimeout]: a handler
// that has not returned when [workers.Pool.Run] does may still have one that it has acquired itself.
func (c *Client) Close() {
	if c.NATS != nil {
		c.NATS.Close()
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.DB.Close()
	}()
	select {
	case <-closed:
	case <-time.After(CloseTimeout):
	}
}

// connectReason returns the text of the error of a connection to NATS, with its cure.
func connectReason(err error) string {
	if missing, ok := errors.AsType[*natsclient.NotFoundError](err); ok {
		return missing.Reason + ": " + missing.Cure
	}
	if unreachable, ok := errors.AsType[*natsclient.UnreachableError](err); ok {
		return unreachable.Error() + ": " + unreachable.Cure()
	}
	if pgerr.Is(err, pgerr.InsufficientPrivilege) {
		return err.Error() + ": grant the login of the worker the role worker of this database, or set NATS_URL"
	}
	return err.Error()
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	for _, d := range []struct {
		value    *string
		fallback string
	}{
		{value: &o.DatabaseURL, fallback: os.Getenv("DATABASE_URL")},
		{value: &o.NATSURL, fallback: os.Getenv("NATS_URL")},
		{value: &o.Name, fallback: "taskledger"},
	} {
		if *d.value == "" {
			*d.value = d.fallback
		}
	}
	return o
}

func openPool(ctx context.Context, o Options, conns int) (*pgxpool.Pool, error) {
	if o.DatabaseURL == "" {
		return nil, &ledger.InvalidError{Field: "DatabaseURL",
			Rule: "is required: set it, or the environment variable DATABASE_URL"}
	}
	config, err := pgpool.Parse(o.DatabaseURL)
	if err != nil { // its text may quote parts of a password
		return nil, &ledger.InvalidError{Field: "DatabaseURL", Rule: "must be an address of PostgreSQL: " +
			"postgres://user:password@host:port/database, with special characters percent-encoded"}
	}
	pgpool.Configure(config, o.Name)
	pgpool.Limit(config, o.DatabaseURL, conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, errors.Join(ledger.ErrUnavailable, err)
	}
	return pool, nil
}
