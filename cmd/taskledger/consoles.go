package main

import (
	"context"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/taskledger/taskledger/internal/httpserver"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/pgpool"
	"github.com/taskledger/taskledger/internal/sdnotify"
	"github.com/taskledger/taskledger/services"
)

// isForConsoles reports whether a flag goes with --consoles.
func isForConsoles(name string) bool {
	switch name {
	case "consoles", "listen", "check", "trace-url", "output", "verbose", "log-format", "log-level":
		return true
	case "http-database-url", "nats-url", "nats-prefix":
		return false
	}
	return strings.HasPrefix(name, "http-") || strings.HasPrefix(name, "nats-") && name != "nats-listen"
}

// checkConsoles returns an error if a flag is not for --consoles.
func (f serveFlags) checkConsoles(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if given.Changed && !isForConsoles(given.Name) && err == nil {
			err = usagef("--consoles and --%s exclude each other", given.Name).
				hinted("the file of ledgers contains the addresses, and each ledger runs its own services")
		}
	})
	if err == nil && f.listen == "" {
		err = usagef("--consoles needs --listen HOST:PORT")
	}
	return err
}

// consolesResult is the output of serve --consoles when it is ready.
type consolesResult struct {
	HTTP    string   `json:"http"`
	Ledgers []string `json:"ledgers"`
}

// serveConsoles serves the consoles of all ledgers in the file of ledgers until ctx is done. None need be available.
func serveConsoles(ctx context.Context, a *app, f serveFlags) error {
	systemd := sdnotify.New()
	defer reportAlive(ctx, systemd)()
	name, err := ledgersFile(a.getenv)
	if err != nil {
		return err
	}
	all, err := readLedgers(name)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return usagef("%s has no ledger", name)
	}
	listener, err := listen(f.listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	log := a.log.With("service", "http")
	secured, err := f.api.secure(listener, log)
	if err != nil {
		return err
	}
	consoles, stop, err := a.openConsoles(ctx, f.api, all)
	if err != nil {
		return err
	}
	defer stop()
	where := consolesResult{f.api.scheme() + listener.Addr().String(), slices.Sorted(maps.Keys(all))}
	if err := a.print(where, where.render); err != nil {
		return err
	}
	defer a.reportReady(ctx, systemd)()
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		consoles.Drain()
		end()
	})()
	return httpserver.Serve(serving, secured, withProbes(consoles), log)
}

// withProbes returns a handler that answers probes itself: a ledger that is unavailable is no reason to restart the
// process.
func withProbes(rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			_, _ = io.WriteString(w, "ok\n")
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// openConsoles returns the console over the ledgers, and a function that closes everything it uses.
func (a *app) openConsoles(ctx context.Context, f apiFlags, all map[string]ledgerAddress) (
	consoles *services.Consoles, stop func(), err error) {
	proxy, err := f.proxy()
	if err != nil {
		return nil, nil, err
	}
	var opened []*shownLedger
	closeAll := func() {
		for _, l := range opened {
			l.close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l, err := a.openShown(ctx, name, all[name])
		if err != nil {
			return nil, nil, err
		}
		opened = append(opened, l)
	}
	var connecting sync.WaitGroup
	for _, l := range opened {
		connecting.Go(func() { l.connect(ctx) }) // it looks for the server first
	}
	connecting.Wait()
	configs := make(map[string]services.HandlerConfig)
	for _, l := range opened {
		configs[l.name] = services.HandlerConfig{DB: l.db, NATS: l.nc, Anonymous: f.anonymous, Certificates: f.ca != "",
			Proxy: proxy, IsBehindTLS: f.behindTLS, TraceURL: f.traceURL, OpenObjects: l.openStore,
			Checks:  func(ctx context.Context) []services.Check { return l.checks(ctx, l.db) },
			Version: readVersion(), Logger: l.log}
	}
	if consoles, err = services.NewConsoles("/", configs); err != nil {
		return nil, nil, err
	}
	return consoles, func() {
		consoles.Drain()
		closeAll()
	}, nil
}

// shownLedger is one of several ledgers with a console: an app with its addresses.
type shownLedger struct {
	app
	name string
	nc   *nats.Conn // nil: the state of the stream is not read
}

// openShown opens the database of a ledger, which may be unavailable.
func (a *app) openShown(ctx context.Context, name string, address ledgerAddress) (*shownLedger, error) {
	l := &shownLedger{app: *a, name: name}
	l.log = a.log.With("service", "http", "ledger", name)
	l.config.databaseURL, l.config.natsURL = address.DatabaseURL, address.NATSURL
	l.config.natsPrefix = address.NATSPrefix
	l.secrets.learnAddress(address.NATSURL)
	err := l.config.checkPrefix()
	var config *pgxpool.Config
	if err == nil {
		config, err = l.databaseConfig(address.DatabaseURL)
	}
	if err == nil {
		pgpool.Limit(config, address.DatabaseURL, max(leastConnections, 4*runtime.GOMAXPROCS(0)))
		l.database = config.ConnConfig.Database
		l.db, err = pgxpool.NewWithConfig(ctx, config)
	}
	if err != nil {
		f := a.describe(err)
		f.message = "ledger " + name + ": " + f.message
		return nil, f
	}
	return l, nil
}

// connect connects to the ledger's NATS, which may be unavailable.
func (l *shownLedger) connect(ctx context.Context) {
	nc, err := l.httpNATS(natsconfig.Relay)
	if err != nil {
		l.log.WarnContext(ctx, "cannot connect to NATS; the state of the stream is not read",
			"error", l.secrets.hide(err.Error()))
		return
	}
	l.nc = nc
}

func (l *shownLedger) close() {
	if l.nc != nil {
		l.nc.Close()
	}
	l.db.Close()
}

func (c consolesResult) render(w io.Writer) {
	renderFields(w, [2]string{"http", c.HTTP}, [2]string{"ledgers", strings.Join(c.Ledgers, ", ")},
		[2]string{"running", "the consoles of these ledgers; stop with Ctrl-C"})
}
