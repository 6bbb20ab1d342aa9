package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger"
	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgpool"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
)

// Role is the part of a program that a process runs, see [Embed].
type Role string

// Roles of a process.
const (
	RoleAll      Role = "all"      // the services and the program
	RoleServices Role = "services" // the services alone
	RoleProgram  Role = "program"  // the program alone; another process runs the services
)

// EmbedOptions are the options of [Embed].
type EmbedOptions struct {
	// Client configures the client. Its DatabaseURL is also the address of the services. Default of its Logger: the
	// warnings and errors of [slog.Default].
	Client taskledger.Options
	// Services configures the services. Default of its DB: up to [Conns] connections to the client's DatabaseURL, whose
	// login then needs the roles relay, producer, worker and subscriber. Default of its NATS: the client's NATSURL,
	// otherwise the database's NATS server. Default of its Logger: the client's.
	Services Config
	// Role is the part of the program to run. Default: the environment variable TASKLEDGER_ROLE, or [RoleAll].
	Role Role
	// Dir is the data directory of the NATS server and of a PostgreSQL server; all processes of a machine may share it.
	// Default: the directory of the command taskledger serve.
	Dir string
	// OwnDatabase starts a PostgreSQL server in Dir if no address is given, with the machine's binaries of PostgreSQL,
	// or fetched ones unless TASKLEDGER_NO_FETCH=1. A second process uses the server of the first one, as do the
	// commands. It is for development: a program in production should not start on an empty database because its
	// address is missing. Default: an address is required.
	OwnDatabase bool
}

// Embed runs a whole ledger in this process: it migrates the schema if migrations are missing, starts the services of
// [Run], and calls program with a client. A program that enqueues tasks and runs workers needs nothing but PostgreSQL.
//
// Any number of processes may call Embed for one ledger: the services of one are active, the workers of all. To run
// the services and the workers in separate processes, start the same program with other roles. Processes on other
// machines reach the NATS server if Services.Server.Listen is an address of the network.
//
// Embed returns when program has returned and the services have stopped. The services run until then, so that workers
// can finish their tasks. If program returns an error, or the PostgreSQL server that Embed has started ends, Embed
// returns that error. In [RoleServices] it returns when ctx is done.
//
// Errors before program is called: [ledger.ErrUnavailable] if PostgreSQL does not answer, [*ledger.InvalidError] if an
// option is invalid, the errors of [migrations.Up].
func Embed(ctx context.Context, o *EmbedOptions, program func(context.Context, *taskledger.Client) error) error {
	if o == nil {
		o = &EmbedOptions{}
	}
	e, err := o.withDefaults()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if e.Client.DatabaseURL == "" && e.OwnDatabase {
		postgres, err := e.ownDatabase(ctx)
		if err != nil {
			return err
		}
		if postgres != nil {
			go stopWith(ctx, postgres, stop)
			return e.embedIn(ctx, stop, postgres, program)
		}
	}
	return e.embed(ctx, stop, program)
}

// embedIn runs a ledger in postgres, and closes the server in the end, even if program panics.
func (o EmbedOptions) embedIn(ctx context.Context, stop context.CancelCauseFunc, postgres *embedded.Server,
	program func(context.Context, *taskledger.Client) error) (err error) {
	defer func() { err = errors.Join(err, postgres.Close()) }()
	return o.embed(ctx, stop, program)
}

// embed runs a ledger in a database. stop ends ctx with a [*stoppedError].
func (o EmbedOptions) embed(
	ctx context.Context, stop context.CancelCauseFunc, program func(context.Context, *taskledger.Client) error,
) error {
	client, err := taskledger.Open(ctx, o.Client)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := migrate(ctx, o.Client.DatabaseURL); err != nil {
		return err
	}
	if o.Role == RoleProgram {
		return failure(ctx, program(ctx, client))
	}
	stopServices, err := o.startServices(ctx, stop, client)
	if err != nil {
		return err
	}
	defer stopServices()
	defer client.Close() // it would warn that their NATS server has ended
	if o.Role == RoleServices {
		<-ctx.Done()
		return failure(ctx, nil)
	}
	if o.ownNATS() { // a client would warn about a server that is about to start
		if natsclient.Await(ctx, client.DB, natsconfig.Worker) != nil {
			return failure(ctx, nil)
		}
	}
	return failure(ctx, program(ctx, client))
}

// withDefaults returns the options with their defaults, and the environment's values.
func (o EmbedOptions) withDefaults() (EmbedOptions, error) {
	for _, d := range []struct {
		value    *string
		fallback string
	}{
		{value: &o.Client.DatabaseURL, fallback: os.Getenv("DATABASE_URL")},
		{value: &o.Client.NATSURL, fallback: os.Getenv("NATS_URL")},
		{value: &o.Client.NATSPrefix, fallback: os.Getenv("TASKLEDGER_NATS_PREFIX")},
		{value: &o.Dir, fallback: os.Getenv("TASKLEDGER_DATA")},
		{value: (*string)(&o.Role), fallback: os.Getenv("TASKLEDGER_ROLE")},
		{value: (*string)(&o.Role), fallback: string(RoleAll)},
	} {
		if *d.value == "" {
			*d.value = d.fallback
		}
	}
	if o.Role != RoleAll && o.Role != RoleServices && o.Role != RoleProgram {
		return o, &ledger.InvalidError{Field: "Role", Value: string(o.Role),
			Rule: "must be all, services or program, in the option or in TASKLEDGER_ROLE"}
	}
	if o.Client.NATSPrefix != "" && o.Client.NATSURL == "" {
		return o, &ledger.InvalidError{Field: "NATSPrefix", Value: o.Client.NATSPrefix,
			Rule: "needs NATSURL: the database's own NATS server has one ledger"}
	}
	if o.Client.Logger == nil {
		o.Client.Logger = slog.New(quiet{slog.Default().Handler()})
	}
	if o.Services.Logger == nil {
		o.Services.Logger = o.Client.Logger
	}
	if o.Services.NATS == nil && o.Client.NATSURL != "" {
		o.Services.NATS = ToNATS(o.Client.NATSURL,
			append(slices.Clone(o.Client.NATSOptions), outbox.NATSPrefix(o.Client.NATSPrefix))...)
	}
	if o.Dir != "" {
		return o, nil
	}
	dir, err := embedded.DefaultDir()
	if err != nil && (o.OwnDatabase || o.ownNATS() && o.Role != RoleProgram) {
		return o, fmt.Errorf("%w: set EmbedOptions.Dir or TASKLEDGER_DATA", err)
	}
	o.Dir = dir
	return o, nil
}

// ownNATS reports whether the services run the database's NATS server.
func (o EmbedOptions) ownNATS() bool { return o.Services.NATS == nil }

// startServices starts the services. They outlive ctx, until stopServices has returned.
func (o EmbedOptions) startServices(
	ctx context.Context, stop context.CancelCauseFunc, client *taskledger.Client,
) (stopServices func(), err error) {
	c, closePool := o.Services, func() {}
	c.idlePools = []*pgxpool.Pool{client.DB}
	if c.DB == nil {
		config := client.DB.Config()
		pgpool.Limit(config, o.Client.DatabaseURL, Conns)
		if c.DB, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return nil, err
		}
		closePool = c.DB.Close
	}
	err = relays.CheckRole(ctx, c.DB)
	if err == nil && o.ownNATS() && c.Server.Dir == "" {
		c.Server.Dir, err = broker.Dir(ctx, c.DB, o.Dir)
	}
	if err != nil {
		closePool()
		return nil, err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := Run(serving, c); err != nil {
			stop(&stoppedError{err})
		}
	}()
	return func() {
		end()
		<-ended
		closePool()
	}, nil
}

// migrate applies the migrations that are missing. It leaves them to another login if this one may not even read them.
func migrate(ctx context.Context, databaseURL string) error {
	switch err := migrations.Check(ctx, databaseURL); {
	case errors.Is(err, ledger.ErrNotMigrated):
		return migrations.Up(ctx, databaseURL)
	case pgerr.Is(err, pgerr.InsufficientPrivilege):
		return nil
	default:
		return err
	}
}

// stoppedError is why a program stops without its caller: the cause of its context.
type stoppedError struct{ error }

func (e *stoppedError) Unwrap() error { return e.error }

// failure returns why the program was stopped, else the error that it returned.
func failure(ctx context.Context, err error) error {
	if stopped, ok := errors.AsType[*stoppedError](context.Cause(ctx)); ok {
		return stopped.error
	}
	return err
}

// quiet passes warnings and errors on.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
