package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers/reconciler"
	"github.com/taskledger/taskledger/workers/scheduler"
)

// serveFlags are the options of serve.
type serveFlags struct {
	binaries string
	alarms   string
	stream   outbox.StreamConfig
}

func newServeCommand(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run all services: relay, projector, scheduler and others",
		Long: `Run the services of the ledger:

  relay       publishes events on NATS JetStream
  projector   keeps the tables of tasks and counts
  scheduler   releases delayed tasks and retries, expires tasks at their deadlines, and
              discards the oldest tasks where a limit requires it
  periodic    enqueues the tasks of schedules
  reconciler  releases tasks whose message was lost
  alarm       sends alarms, with --alarms

Any number of processes may run. One relay and one projector work; the others stand by.

Without ` + envDatabaseURL + ` and ` + envNATSURL + `, serve starts servers of its own: PostgreSQL from the installed
binaries, and NATS in its own process. The data directory has their data, and their addresses for
other commands.

Services retry while PostgreSQL or NATS is unavailable. If a service must not continue, the others
do. The log and taskledger status report the cure, and serve starts the service again every 5 s.

The first SIGINT or SIGTERM shuts serve down, with exit code 0; a second one kills it. Without a
signal serve ends only if it cannot start, or if its own PostgreSQL has ended (exit code 5).`,
		Example: "  taskledger serve\n" +
			"  taskledger serve --database-url postgres://app@db/app --nats-url nats://nats:4222",
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := serve(cmd.Context(), a, f)
			if errors.Is(err, context.Canceled) && cmd.Context().Err() != nil {
				err = nil // stopped by a signal
			}
			if err == nil {
				fmt.Fprintln(a.stderr, "stopped")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&f.binaries, "postgres-binaries", "",
		"`directory` of postgres and initdb (default: searched)")
	cmd.Flags().Int64Var(&f.stream.MaxBytes, "stream-max-bytes", 0,
		"greatest size of a new stream, in bytes (default: 4 GiB)")
	cmd.Flags().DurationVar(&f.stream.MaxAge, "stream-max-age", 0,
		"greatest age of messages on a new stream (default: 72h)")
	cmd.Flags().IntVar(&f.stream.Replicas, "stream-replicas", 0,
		"replicas of a new stream (default: 1)")
	addAlarmsFlag(cmd, &f.alarms)
	for _, name := range []string{"postgres-binaries", "stream-max-bytes", "stream-max-age", "stream-replicas"} {
		bind(cmd.Flags(), name, "TASKLEDGER_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	}
	return cmd
}

func serve(ctx context.Context, a *app, f serveFlags) (err error) {
	if err := f.stream.Validate(); err != nil {
		return usagef("%s", err)
	}
	alarms, err := readAlarms(a, f.alarms)
	if err != nil {
		return err
	}
	var lost <-chan struct{} // closed when one of the servers started here has ended
	var hooks []outbox.Hook
	switch given := a.config; {
	case given.databaseURL == "" && given.natsURL == "":
		servers, err := a.startServers(ctx, f.binaries)
		if err != nil {
			return err
		}
		defer func() { err = firstOf(err, servers.Close()) }()
		lost = servers.Lost()
		hooks = append(hooks, newNATSRestart(servers.NATS(), a.log.With("service", "nats")))
	case given.databaseURL == "":
		return usagef("%s is set and %s is not", envNATSURL, envDatabaseURL).
			hinted("set both, or neither for servers of its own")
	case given.natsURL == "":
		return usagef("%s is set and %s is not", envDatabaseURL, envNATSURL).
			hinted("set both, or neither for servers of its own")
	}
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Check(ctx, a.config.databaseURL); err != nil {
		return err
	}
	where := serving{Database: endpoint(a.config.databaseURL), NATS: endpoint(a.config.natsURL)}
	if lost != nil {
		where.DataDir = a.config.dataDir
	}
	if err := a.print(where, where.render); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-lost: // never, if no server was started here
			stop(failf(exitUnavailable, "PostgreSQL has ended").hinted("see postgres/log in %s", a.config.dataDir))
		}
	}()
	services := []service{relayService(a, pool, f.stream, hooks), projectorService(a, pool), schedulerService(a, pool),
		periodicService(a, pool), reconcilerService(a, pool)}
	a.runServices(ctx, append(services, alarmServices(a, pool, alarms)...)...)
	return context.Cause(ctx)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// startServers starts the servers and migrates their database.
func (a *app) startServers(ctx context.Context, binaries string) (*embedded.Servers, error) {
	fmt.Fprintf(a.stderr, "starting PostgreSQL and NATS in %s\n", a.config.dataDir)
	servers, err := embedded.Start(ctx, embedded.Config{Dir: a.config.dataDir, Binaries: binaries})
	if err != nil {
		return nil, err
	}
	a.config.use(servers.DatabaseURL, servers.NATSURLs[natsconfig.Relay])
	if err := migrations.Up(ctx, servers.DatabaseURL); err != nil {
		return nil, firstOf(err, servers.Close())
	}
	return servers, nil
}

// serving is the output of serve when it is ready.
type serving struct {
	Database string `json:"database"` // without secrets, as is NATS
	NATS     string `json:"nats"`
	DataDir  string `json:"data_dir,omitempty"` // of the servers started here: server.json there has the secrets
}

// relayService connects to NATS for each run of the relay: a connection that NATS has refused for its
// credentials stays closed.
func relayService(a *app, pool *pgxpool.Pool, stream outbox.StreamConfig, hooks []outbox.Hook) service {
	return service{"relay", func(ctx context.Context, log *slog.Logger) error {
		nc, err := a.connectNATS(true, a.natsLogging()...)
		if err != nil {
			return err
		}
		defer nc.Close()
		relay, err := outbox.New(outbox.Config{DB: pool, NATS: nc, Stream: stream, Logger: log, Hooks: hooks})
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	}}
}

func projectorService(a *app, pool *pgxpool.Pool) service {
	return service{"projector", func(ctx context.Context, log *slog.Logger) error {
		p, err := projector.New(projector.Config{DB: pool, Logger: log})
		if err != nil {
			return err
		}
		return p.Run(ctx)
	}}
}

func reconcilerService(a *app, pool *pgxpool.Pool) service {
	return service{"reconciler", func(ctx context.Context, log *slog.Logger) error {
		nc, err := a.connectNATS(true)
		if err != nil {
			return err
		}
		defer nc.Close()
		r, err := reconciler.New(reconciler.Config{DB: pool, NATS: nc, Logger: log})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}}
}

func schedulerService(a *app, pool *pgxpool.Pool) service {
	return service{"scheduler", func(ctx context.Context, log *slog.Logger) error {
		s, err := scheduler.New(scheduler.Config{DB: pool, Logger: log})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}}
}

func periodicService(a *app, pool *pgxpool.Pool) service {
	return service{"periodic", func(ctx context.Context, log *slog.Logger) error {
		r, err := periodic.New(periodic.Config{DB: pool, Logger: log})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}}
}

func (s serving) render(w io.Writer) {
	fields := [][2]string{{"database", s.Database}, {"nats", s.NATS}}
	if s.DataDir != "" {
		fields = append(fields, [2]string{"data", s.DataDir}, [2]string{"addresses", s.DataDir + "/server.json"})
	}
	fields = append(fields, [2]string{"running",
		"all services; relay and projector may stand by for those of another process; stop with Ctrl-C"})
	renderFields(w, fields...)
}

// endpoint returns a URL without user, password and parameters. It returns "as configured" for an address in another
// form, because secrets in it cannot be recognized.
func endpoint(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "as configured"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// natsLogging logs when the connection to NATS is lost and restored.
func (a *app) natsLogging() []nats.Option {
	log := a.log.With("service", "nats")
	return []nats.Option{
		nats.ConnectHandler(func(nc *nats.Conn) { log.Info("connected", "server", nc.ConnectedUrlRedacted()) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("reconnected", "server", nc.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("error", "error", err) }),
		nats.ReconnectErrHandler(throttled(log)),
	}
}

// throttled logs failed attempts to reconnect at intervals, since there are several a second.
func throttled(log *slog.Logger) nats.ConnErrHandler {
	var last time.Time
	return func(_ *nats.Conn, err error) {
		if now := time.Now(); now.Sub(last) > 30*time.Second {
			last = now
			if cure := natsTLS.cure(err); cure != "" {
				log.Warn("cannot connect", "error", err, "cure", cure)
				return
			}
			log.Warn("cannot connect", "error", err)
		}
	}
}
