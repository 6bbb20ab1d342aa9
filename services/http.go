package services

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/httpserver"
	"github.com/taskledger/taskledger/internal/probe"
	"github.com/taskledger/taskledger/metrics"
)

// http returns the service of the HTTP server. It listens again after the listener has failed.
func (c Config) http(r *reporter) (service, error) {
	mux, err := c.endpoints(r)
	if err != nil {
		return service{}, err
	}
	l, address := c.Listener, c.Listener.Addr()
	return service{"http", func(ctx context.Context, log *slog.Logger) (err error) {
		if l == nil {
			if l, err = net.Listen(address.Network(), address.String()); err != nil {
				return err
			}
		}
		defer func() { l = nil }()
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		defer context.AfterFunc(ctx, func() {
			c.drain()
			stop()
		})()
		return httpserver.Serve(serving, l, mux, log)
	}}, nil
}

func (c Config) endpoints(r *reporter) (http.Handler, error) {
	log := c.Logger.With("service", "http")
	ofLedger, err := metrics.NewLedger(metrics.LedgerConfig{DB: c.DB, Report: r.read, Logger: log})
	if err != nil {
		return nil, err
	}
	process := metrics.NewProcess()
	process.AddDatabase(c.DB)
	exported, err := metrics.Handler(ofLedger, process)
	if err != nil {
		return nil, err
	}
	if c.sleeper != nil {
		c.sleeper.metrics, err = metrics.Handler(process)
		if err != nil {
			return nil, err
		}
	}
	probes, err := probe.New(probe.Config{DB: c.DB, Report: r.conditions, ReportCritical: r.critical,
		Metrics: exported, Logger: log})
	if err != nil {
		return nil, err
	}
	rest := http.NotFoundHandler()
	if c.API != nil {
		read := r.read
		c.API.report.Store(&read)
		rest = c.API
	}
	return c.before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics":
			c.sleeper.probes(probes).ServeHTTP(w, r)
		default:
			if c.API != nil && c.API.refuses(r) {
				rest.ServeHTTP(w, r)
				return
			}
			c.sleeper.gate(rest).ServeHTTP(w, r)
		}
	})), nil
}

// before returns a handler that serves the paths of Handlers, and passes other requests to rest. It is not a
// [http.ServeMux], which redirects paths with empty segments.
func (c Config) before(rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for path, handler := range c.Handlers {
			if r.URL.Path == path || strings.HasSuffix(path, "/") && strings.HasPrefix(r.URL.Path, path) {
				c.sleeper.gate(handler).ServeHTTP(w, r)
				return
			}
		}
		rest.ServeHTTP(w, r)
	})
}

// reporter reads reports of health over a connection to NATS that stays open. It is safe for concurrent use.
type reporter struct {
	config Config

	failed atomic.Pointer[string] // why the last attempt to connect again failed; nil: none has

	numbers health.Numbers

	mu sync.Mutex
	nc *nats.Conn // nil before the first report
}

func (r *reporter) read(ctx context.Context) (health.Report, error) { return r.readOnly(ctx, nil) }

// conditions returns the conditions that hold.
func (r *reporter) conditions(ctx context.Context) ([]probe.Condition, error) {
	return r.held(ctx, nil)
}

// critical returns the critical conditions that hold.
func (r *reporter) critical(ctx context.Context) ([]probe.Condition, error) {
	return r.held(ctx, health.Critical())
}

func (r *reporter) held(ctx context.Context, only []health.Name) (held []probe.Condition, err error) {
	report, err := r.readOnly(ctx, only)
	for _, c := range report.Degraded {
		held = append(held, c)
	}
	return held, err
}

// readOnly reads the named conditions; nil: all.
func (r *reporter) readOnly(ctx context.Context, only []health.Name) (health.Report, error) {
	js, failure := r.jetStream()
	return health.Read(ctx, health.Config{
		DB: r.config.DB, JetStream: js, NATSError: failure, Stream: r.config.Stream, Alarms: alarm.ReadUndelivered,
		Only: only, Numbers: &r.numbers,
	})
}

// jetStream connects again after NATS has closed the connection, as it does when it refuses the credentials.
func (r *reporter) jetStream() (jetstream.JetStream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nc == nil || r.nc.IsClosed() {
		r.failed.Store(nil)
		nc, err := r.config.NATS(nats.ErrorHandler(ignoreErrors), nats.ReconnectErrHandler(r.noteFailure))
		if err != nil {
			return nil, errors.New(r.config.reason(err))
		}
		r.nc = nc
	}
	if !r.nc.IsConnected() {
		if err := r.nc.LastError(); err != nil {
			return nil, errors.New("NATS is not connected: " + r.config.reason(err))
		}
		if failed := r.failed.Load(); failed != nil {
			return nil, errors.New("NATS is not connected: " + *failed)
		}
		return nil, errors.New("NATS is not connected")
	}
	return jetstream.New(r.nc)
}

// noteFailure records why the connection failed.
func (r *reporter) noteFailure(_ *nats.Conn, err error) {
	reason := r.config.reason(err)
	r.failed.Store(&reason)
}

// close ends the connection.
func (r *reporter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nc != nil {
		r.nc.Close()
	}
}

// ignoreErrors is for connections whose errors the relay's connection logs as well.
func ignoreErrors(*nats.Conn, *nats.Subscription, error) {}
