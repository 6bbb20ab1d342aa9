package taskledger

import (
	"log/slog"
	"os"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// Options are the options of [Open].
type Options struct {
	// DatabaseURL is the address of the primary. Default: the environment variable DATABASE_URL.
	DatabaseURL string
	// NATSURL is the address of NATS, with the credentials of the user worker, or of waiter if the program only
	// waits. Default: the environment variable NATS_URL, else the server that taskledger serve runs for the
	// database.
	NATSURL string
	// NATSPrefix separates ledgers that share a NATS account, see [outbox.NATSPrefix]. Default: the environment
	// variable TASKLEDGER_NATS_PREFIX, else none.
	NATSPrefix string
	// NATSOptions are added to the client's own connection options.
	NATSOptions []nats.Option
	// Name names the connections in PostgreSQL (application_name) and NATS. Default: taskledger.
	Name string
	// Logger receives warnings and errors of the client and its workers. Default: [slog.Default].
	Logger *slog.Logger
	// Metrics exports the client's connections, workers and attempts: a metrics.Process. Default: disabled.
	Metrics Metrics
	// Tracing records spans of the workers' attempts: a tracing.Tracing. Enqueues are traced if their kind
	// carries its hook. Default: disabled.
	Tracing Tracing
	// Worker configures [Client.Worker]. DB, NATS and Logger are the client's by default.
	Worker workers.Config
}

// Metrics exports the connections, workers and attempts of a client. Package metrics implements it. It is safe
// for concurrent use.
type Metrics interface {
	Workers() workers.Hook // of each attempt
	AddDatabase(*pgxpool.Pool)
	AddNATS(*nats.Conn)
	AddWorkers(*workers.Pool)
}

// Tracing records spans of a client's workers. Package tracing implements it.
type Tracing interface {
	Workers() workers.Hook       // a span of each attempt
	Handler() workers.Middleware // a span of each call of a handler
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
		{value: &o.NATSPrefix, fallback: os.Getenv("TASKLEDGER_NATS_PREFIX")},
		{value: &o.Name, fallback: "taskledger"},
	} {
		if *d.value == "" {
			*d.value = d.fallback
		}
	}
	return o
}

// validatePrefix returns an error of the prefix.
func (o Options) validatePrefix() error {
	if o.NATSPrefix != "" && o.NATSURL == "" {
		return &ledger.InvalidError{Field: "NATSPrefix", Value: o.NATSPrefix,
			Rule: "needs NATSURL: the NATS server of taskledger serve has one ledger"}
	}
	return stream.Prefix(o.NATSPrefix).Validate()
}

// workerConfig returns the configuration of a worker. Tracing wraps the caller's hooks and middleware, and
// metrics wrap tracing.
func (o Options) workerConfig() workers.Config {
	c := o.Worker
	if c.Logger == nil {
		c.Logger = o.Logger
	}
	if o.Tracing != nil {
		c.Hooks = slices.Concat([]workers.Hook{o.Tracing.Workers()}, c.Hooks)
		c.Middleware = slices.Concat([]workers.Middleware{o.Tracing.Handler()}, c.Middleware)
	}
	if o.Metrics != nil {
		c.Hooks = slices.Concat([]workers.Hook{o.Metrics.Workers()}, c.Hooks)
	}
	return c
}
