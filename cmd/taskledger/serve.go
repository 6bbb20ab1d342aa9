package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/sdnotify"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/services"
)

// serveFlags are the options of serve.
type serveFlags struct {
	binaries string
	noFetch  bool
	alarms   string
	seal     string
	archive  archiveService
	listen   string
	isCheck  bool // only asks the process that listens there
	consoles bool // only serves the consoles of several ledgers
	api      apiFlags
	push     string
	isOff    bool // the stream
	stream   outbox.StreamConfig
	server   services.ServerConfig

	latency    time.Duration
	leaseTTL   time.Duration
	ackTimeout time.Duration

	sleepAfter  time.Duration
	sleepAtMost time.Duration
}

func newServeCommand(a *app) *cobra.Command {
	var f serveFlags
	var isOn string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run all services: relay, projector, scheduler and others",
		Long: `Run the services of the ledger:

  relay       publishes events on NATS JetStream, unless --stream off
  projector   keeps the tables of tasks and counts
  dispatcher  gives available tasks to workers
  scheduler   releases delayed tasks and retries, expires tasks at their deadlines, and
              discards the oldest tasks where a limit requires it
  periodic    enqueues the tasks of schedules
  alarm       sends alarms, with --alarms
  seal        seals the events, and signs and publishes checkpoints, with --seal
  archive     removes finished tasks from the tables, with --archive-after
  http        answers /healthz, /readyz and /metrics, the HTTP API at /v1/ and the console at /,
              with --listen

Any number of processes may run. One relay, one projector, one dispatcher and one sealer
work; the others stand by.

With ` + envDatabaseURL + ` alone, serve runs the NATS server of this database, or stands by for the process that
runs it. Other programs with ` + envDatabaseURL + ` find its address and their credentials in the database.
With --peers, the servers of 3 or 5 processes are one cluster, whose streams have 3 replicas.

Without ` + envDatabaseURL + ` and ` + envNATSURL + `, serve starts a PostgreSQL of its own, from the installed
binaries or fetched ones, and its NATS server as above. The data directory contains their data, and the address of the
database for other commands.

With --consoles, serve runs no services: it serves the consoles of all ledgers in the file of ledgers, each below
/ledgers/NAME/, and a page with their states at /.

With --sleep-after, the services stop once the ledger has had nothing to do for that time, and leave no session in
PostgreSQL, so that a managed one may suspend. They start for a message on the subject taskledger.wake, for an HTTP
request that is not a probe, when a task or a schedule is due, or after --sleep-at-most.

Services retry while PostgreSQL or NATS is unavailable. If a service must not continue, the others
do. The log and taskledger status report the cure, and serve starts the service again every 5 s.

The first SIGINT or SIGTERM shuts serve down, with exit code 0; a second one kills it. Without a
signal serve ends only if it cannot start, or if its own PostgreSQL has ended (exit code 5).`,
		Example: "  taskledger serve\n" +
			"  taskledger serve --database-url postgres://app@db/app --nats-url nats://nats:4222",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args)
			}
			var err error
			if f.isOff, err = isStreamOff(isOn); err != nil {
				return err
			}
			if f.isCheck {
				return f.check(cmd.Context())
			}
			if f.consoles {
				if err := f.checkConsoles(cmd); err != nil {
					return err
				}
				err = serveConsoles(cmd.Context(), a, f)
			} else {
				err = serve(cmd.Context(), a, f)
			}
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
	addNoFetchFlag(cmd, &f.noFetch)
	cmd.Flags().StringVar(&isOn, "stream", "on",
		"on or off: off leaves out the relay and the stream LEDGER, which only consumers of the stream need")
	cmd.Flags().Int64Var(&f.stream.MaxBytes, "stream-max-bytes", 0,
		"greatest size of a new stream, in bytes (default: 4 GiB)")
	addDuration(cmd.Flags(), &f.stream.MaxAge, "stream-max-age",
		"greatest age of messages on a new stream (default: 72h)")
	cmd.Flags().IntVar(&f.stream.Replicas, "stream-replicas", 0,
		"replicas of a new stream (default: 1, with --peers 3)")
	cmd.Flags().StringVar(&f.listen, "listen", "", "`address` of the HTTP server, as 127.0.0.1:8080 (default: none)")
	cmd.Flags().BoolVar(&f.isCheck, "check", false,
		"only ask the process that listens at --listen whether it can work: the health check of a container")
	cmd.Flags().BoolVar(&f.consoles, "consoles", false,
		"only serve, at --listen, the consoles of all ledgers in the file $"+envLedgers)
	cmd.Flags().StringVar(&f.server.Listen, "nats-listen", "",
		"`address` where the NATS server of serve listens (default: 127.0.0.1); with TLS outside of loopback")
	cmd.Flags().StringVar(&f.server.Advertise, "advertise", "",
		"`address` of that server for clients on other machines (default: --nats-listen)")
	cmd.Flags().StringSliceVar(&f.server.Peers, "peers", nil,
		"`addresses` where the NATS servers of 3 or 5 processes, this one among them, listen for each other:\n"+
			"one cluster (default: one server)")
	cmd.Flags().StringVar(&f.server.ClusterListen, "cluster-listen", "",
		"`address` where that server listens for its peers (default: the host of --nats-listen, the port in --peers)")
	addDuration(cmd.Flags(), &f.latency, "latency",
		"how long events gather while tasks come evenly, at most 1s; outcomes gather for five times as long\n"+
			"(default: 5ms)")
	addDuration(cmd.Flags(), &f.leaseTTL, "lease-ttl",
		"after this time another relay replaces a relay that hangs (default: 5s)")
	addDuration(cmd.Flags(), &f.ackTimeout, "ack-timeout",
		"how long the relay waits for JetStream to store a page (default: 5s)")
	addDuration(cmd.Flags(), &f.sleepAfter, "sleep-after",
		"how long the ledger must have nothing to do before the services sleep, without a session in PostgreSQL\n"+
			"(default: never)")
	addDuration(cmd.Flags(), &f.sleepAtMost, "sleep-at-most",
		"the longest sleep, after which tasks begin whose producer sent no message (default: 1h)")
	refuseZero(cmd.Flags(), "stream-max-bytes", "stream-max-age", "stream-replicas", "latency", "lease-ttl",
		"ack-timeout", "sleep-after", "sleep-at-most")
	f.api.add(cmd.Flags())
	cmd.Flags().StringVar(&f.push, "push", "",
		"`file` with kinds whose tasks are sent to HTTP servers: docs/webhooks.md (default: none)")
	addAlarmsFlag(cmd, &f.alarms)
	addSealFlag(cmd, &f.seal)
	f.archive.add(cmd)
	for _, name := range []string{
		"postgres-binaries", "listen", "stream", "stream-max-bytes", "stream-max-age", "stream-replicas", "nats-listen",
		"advertise", "peers", "cluster-listen", "latency", "lease-ttl", "ack-timeout", "push", "sleep-after",
		"sleep-at-most",
	} {
		bind(cmd.Flags(), name, "TASKLEDGER_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	}
	cmd.AddCommand(newServeWebhooksCommand(a), newServeSubscriberCommand(a))
	return cmd
}

// isStreamOff parses --stream.
func isStreamOff(value string) (bool, error) {
	if value != "on" && value != "off" {
		return false, usagef("--stream must be on or off, got %q", value)
	}
	return value == "off", nil
}

func (f serveFlags) validate() error {
	if f.isOff && f.stream != (outbox.StreamConfig{}) {
		return usagef("--stream-max-bytes, --stream-max-age and --stream-replicas are for --stream on")
	}
	if err := f.stream.Validate(); err != nil {
		return usagef("%s", err)
	}
	if err := f.archive.validate(); err != nil {
		return err
	}
	err := broker.Config{
		Listen: f.server.Listen, Advertise: f.server.Advertise,
		Peers: f.server.Peers, ClusterListen: f.server.ClusterListen,
	}.CheckAddresses()
	if err != nil {
		return usagef("%s", err)
	}
	if _, err := f.api.proxy(); err != nil {
		return err
	}
	if f.latency < 0 || f.latency > time.Second {
		return usagef("--latency must be between 0s and 1s, got %s", f.latency)
	}
	switch {
	case f.sleepAfter != 0 && f.sleepAfter < services.MinSleepAfter:
		return usagef("--sleep-after must be at least %s, got %s", services.MinSleepAfter, f.sleepAfter)
	case f.sleepAtMost != 0 && f.sleepAfter == 0:
		return usagef("--sleep-at-most needs --sleep-after")
	case f.sleepAtMost != 0 && f.sleepAtMost < f.sleepAfter:
		return usagef("--sleep-at-most must be at least --sleep-after, got %s", f.sleepAtMost)
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{flag: "lease-ttl", value: f.leaseTTL}, {flag: "ack-timeout", value: f.ackTimeout}} {
		if d.value != 0 && d.value < outbox.MinInterval {
			return usagef("--%s must be at least %s, got %s", d.flag, outbox.MinInterval, d.value)
		}
	}
	return nil
}

// reportAlive reports to systemd's watchdog that the process is alive, until stop is called, even during a shutdown.
func reportAlive(ctx context.Context, systemd sdnotify.Notifier) (stop func()) {
	ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	go systemd.KeepAlive(ctx)
	return stop
}

// reportReady reports to systemd that serve has started and, unless stop is called, its shutdown when ctx is done.
func (a *app) reportReady(ctx context.Context, systemd sdnotify.Notifier) (stop func() bool) {
	if err := systemd.Ready(ctx); err != nil {
		a.log.WarnContext(ctx, "cannot report to systemd", "error", err)
	}
	return context.AfterFunc(ctx, func() { _ = systemd.Stopping(context.WithoutCancel(ctx)) })
}

func serve(ctx context.Context, a *app, f serveFlags) (err error) {
	systemd := sdnotify.New()
	defer reportAlive(ctx, systemd)()
	if err := f.validate(); err != nil {
		return err
	}
	if len(f.server.Peers) > 0 && (a.config.databaseURL == "" || a.config.natsURL != "") {
		return usagef("--peers is for serve with %s and without %s", envDatabaseURL, envNATSURL)
	}
	if most := max(1, len(f.server.Peers)); a.config.natsURL == "" && f.stream.Replicas > most {
		return usagef("--stream-replicas must be at most %d, the number of NATS servers of serve, got %d", most,
			f.stream.Replicas).hinted("start a cluster with --peers, or set %s", envNATSURL)
	}
	_, alarms, err := readAlarms(a, f.alarms)
	if err != nil {
		return err
	}
	_, sealed, err := readSealFile(a, f.seal)
	if err != nil {
		return err
	}
	listener, err := listen(f.listen)
	if err != nil {
		return err
	}
	if listener != nil {
		defer func() { _ = listener.Close() }() // the service has closed it already
	}
	secured, err := f.api.secure(listener, a.log.With("service", "http"))
	if err != nil {
		return err
	}
	httpURL := ""
	if listener != nil {
		httpURL = f.api.scheme() + listener.Addr().String()
	}
	postgres, err := a.postgresOf(ctx, f, httpURL)
	if err != nil {
		return err
	}
	var lost <-chan struct{} // closed when the PostgreSQL started here has ended
	if postgres != nil {
		defer func() { err = firstOf(err, postgres.Close()) }()
		lost = postgres.Lost()
	}
	a.conns = services.Conns
	pool, err := a.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Check(ctx, a.config.databaseURL); err != nil {
		return err
	}
	if err := relays.CheckRole(ctx, pool); err != nil {
		return err
	}
	if sealed != nil {
		if err := checkSealer(ctx, a, pool); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-lost: // never, if none was started here
			stop(failf(exitUnavailable, "PostgreSQL has ended").hinted("see postgres/log in %s", a.config.dataDir))
		}
	}()
	c := services.Config{
		DB: pool, Server: f.server, Stream: f.stream, StreamOff: f.isOff,
		Latency: f.latency, LeaseTTL: f.leaseTTL, AckTimeout: f.ackTimeout,
		Alarms: alarms, Seal: sealed, ArchiveAfter: f.archive.after, ArchiveTo: f.archive.place(),
		OpenObjects: a.openStore, Logger: a.log, Describe: a.explain,
		SleepAfter: f.sleepAfter, SleepAtMost: f.sleepAtMost,
	}
	if f.isOff {
		f.api.pollEvery = waitPoll
	}
	if listener != nil {
		f.api.archive = f.archive.place()
		handler, stop, err := a.httpAPI(ctx, f.api)
		if err != nil {
			return err
		}
		defer stop()
		if c.Push, err = a.readPush(f.push); err != nil {
			return err
		}
		c.Listener, c.API = secured, handler
	}
	if f.push != "" && listener == nil {
		return usagef("--push needs --listen, by whose API a server ends the tasks that it has accepted")
	}
	if a.config.natsURL != "" {
		c.NATS = a.toNATS
	} else if c.Server.Dir, err = broker.Dir(ctx, pool, a.config.dataDir); err != nil {
		return err
	}
	where := serveResult{Database: endpoint(a.config.databaseURL), NATS: "own"}
	if f.isOff {
		where.Stream = "off"
	}
	if a.config.natsURL != "" {
		where.NATS = endpoint(a.config.natsURL)
	}
	if lost != nil {
		where.DataDir = a.config.dataDir
	}
	where.HTTP = httpURL
	if err := a.print(where, where.render); err != nil {
		return err
	}
	defer a.reportReady(ctx, systemd)()
	if err := services.Run(ctx, c); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// toNATS opens a connection that waits for its server.
func (a *app) toNATS(options ...nats.Option) (*nats.Conn, error) {
	return a.connectNATS(true, options...)
}

// explain returns the text of an error without secrets, and its cure.
func (a *app) explain(err error) (text, cure string) {
	f := a.describe(err)
	if tls := natsTLS.cure(err); tls != "" {
		f.hint = tls
	}
	return a.secrets.hide(f.message), a.secrets.hide(f.hint)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// postgresOf starts PostgreSQL if no address is given; else it returns nil. The other commands find httpURL with it.
func (a *app) postgresOf(ctx context.Context, f serveFlags, httpURL string) (*embedded.Server, error) {
	switch given := a.config; {
	case given.databaseURL == "" && given.natsURL == "":
		return a.startPostgres(ctx, f, httpURL)
	case given.databaseURL == "":
		return nil, usagef("%s is set and %s is not", envNATSURL, envDatabaseURL).
			hinted("set both, or neither for servers of its own")
	}
	return nil, nil
}

// startPostgres starts PostgreSQL and migrates its database.
func (a *app) startPostgres(ctx context.Context, f serveFlags, httpURL string) (*embedded.Server, error) {
	fmt.Fprintf(a.stderr, "starting PostgreSQL in %s\n", a.config.dataDir)
	if a.getenv(envDatabaseURL) != "" {
		fmt.Fprintf(a.stderr, "--data-dir overrules %s; give --database-url too for that database\n", envDatabaseURL)
	}
	postgres, err := embedded.Start(ctx, embedded.Config{
		Dir: a.config.dataDir, Binaries: f.binaries, Fetch: a.fetchPostgres(f.noFetch), HTTPURL: httpURL,
		Prepare: migrations.Up, // the other commands must not find a database without tables
	})
	if err != nil {
		return nil, err
	}
	if postgres.LastPort != 0 {
		a.log.WarnContext(ctx, "another process listens on the last start's port; PostgreSQL uses another port: "+
			"programs with a copy of its address need the new one, which is in server.json",
			"port", postgres.LastPort)
	}
	a.config.use(postgres.DatabaseURL, "")
	return postgres, nil
}

// serveResult is the output of serve when it is ready.
type serveResult struct {
	Database string `json:"database"` // without secrets, as is NATS
	NATS     string `json:"nats"`
	Stream   string `json:"stream,omitempty"` // off
	HTTP     string `json:"http,omitempty"`
	DataDir  string `json:"data_dir,omitempty"` // of the PostgreSQL started here; its address is in server.json
}

func (s serveResult) render(w io.Writer) {
	fields := [][2]string{{"database", s.Database}, {"nats", s.NATS}}
	if s.HTTP != "" {
		fields = append(fields, [2]string{"http", s.HTTP})
	}
	if s.DataDir != "" {
		fields = append(fields, [2]string{"data", s.DataDir}, [2]string{"addresses", s.DataDir + "/server.json"})
	}
	running, standBy := "all services", "dispatcher, relay and projector"
	if s.Stream != "" {
		running, standBy = "all services but the relay", "dispatcher and projector"
	}
	running += "; " + standBy + " may stand by for another process; stop with Ctrl-C"
	fields = append(fields, [2]string{"running", running})
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
