package probe

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
)

const (
	// MaxAge is the age up to which a result serves further requests, so that their cost is bounded.
	MaxAge = 250 * time.Millisecond
	// timeout bounds the examination for a request.
	timeout = 5 * time.Second
	// reportTimeout bounds the report of all conditions. The rest of timeout is for the conditions that decide
	// readiness.
	reportTimeout = 3 * time.Second
)

// Config configures [New].
type Config struct {
	// DB is the database of the ledger. Required.
	DB ledger.DB
	// NATS is the connection of the process to NATS. Default: it is not examined.
	NATS *nats.Conn
	// Report returns the conditions that hold. Default: none are read, as in a worker, whose login may not read them.
	Report func(context.Context) ([]Condition, error)
	// ReportCritical returns the critical conditions that hold. It is called if Report takes too long. Default: the
	// process is not ready then.
	ReportCritical func(context.Context) ([]Condition, error)
	// Metrics serves /metrics. Default: there are no metrics.
	Metrics http.Handler
	// Logger logs why the process is not ready, once for each reason. Default: [slog.Default].
	Logger *slog.Logger
}

// Condition is a condition that holds. It is an interface, so that a worker does not link package health.
type Condition interface {
	// IsCritical reports whether the condition makes the process not ready.
	IsCritical() bool
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	if c.DB == nil {
		return errors.New("probe: DB is required")
	}
	return nil
}

// Readiness is the body of /readyz.
type Readiness struct {
	Ready bool   `json:"ready"`
	Error string `json:"error,omitempty"` // why the conditions could not be read
	Cure  string `json:"cure,omitempty"`  // of the error

	Asleep bool `json:"asleep,omitempty"` // the services sleep: nothing was examined

	Degraded []Condition `json:"degraded"` // the conditions that hold
}

// New returns the handler. It is safe for concurrent use.
func New(c Config) (http.Handler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	p := &prober{config: c}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, alive) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		result := p.examine(r.Context())
		status := http.StatusOK
		if !result.Ready {
			status = http.StatusServiceUnavailable
		}
		write(w, status, result)
	})
	if c.Metrics != nil {
		mux.Handle("GET /metrics", c.Metrics)
	}
	return mux, nil
}

// alive is the body of /healthz.
var alive = struct {
	Alive bool `json:"alive"`
}{true}

func write(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // the client has ended the connection
}

// prober examines for one request at a time, and keeps the result for MaxAge.
type prober struct {
	config Config

	mu     sync.Mutex
	result Readiness
	at     time.Time
	logged string // the reason that was logged last
}

func (p *prober) examine(ctx context.Context) Readiness {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < MaxAge {
		return p.result
	}
	// If a client ends its request, the result is still valid for the next request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	result, err := p.read(ctx)
	p.result, p.at = result, time.Now()
	p.log(err)
	return result
}

// log logs a reason when it begins and when it ends.
func (p *prober) log(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if reason == p.logged {
		return
	}
	if p.logged = reason; reason == "" {
		p.config.Logger.Info("the process can be examined again")
		return
	}
	p.config.Logger.Warn("not ready", "error", reason)
}

// read returns the result. Its error is for the log; the text of the result names no address.
func (p *prober) read(ctx context.Context) (Readiness, error) {
	c := p.config
	if _, err := c.DB.Exec(ctx, "select 1"); err != nil {
		return notReady("the database does not answer",
			"check DATABASE_URL, and that PostgreSQL is running there; the log contains the reason"), err
	}
	if c.NATS != nil && !c.NATS.IsConnected() {
		err := c.NATS.LastError()
		if err == nil {
			err = nats.ErrDisconnected
		}
		return notReady("NATS is not connected",
			"check NATS_URL, and that NATS is running there; the log contains the reason"), err
	}
	ready := Readiness{Ready: true, Degraded: []Condition{}}
	if c.Report == nil {
		return ready, nil
	}
	held, err := p.report(ctx, &ready)
	switch {
	case errors.Is(err, ledger.ErrNotMigrated):
		return notReady("the database is not migrated", "run: taskledger migrate up"), err
	case err != nil:
		return notReady("the conditions cannot be read",
			"the log contains the reason; run: taskledger status"), err
	}
	ready.Degraded = append(ready.Degraded, held...)
	ready.Ready = !slices.ContainsFunc(held, Condition.IsCritical)
	return ready, nil
}

// report returns all conditions that hold. If that takes too long, as in a database with 100,000 kinds, it returns
// only the critical ones, and sets an error in the result.
func (p *prober) report(ctx context.Context, result *Readiness) ([]Condition, error) {
	bounded, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	held, err := p.config.Report(bounded)
	if err == nil || bounded.Err() == nil || p.config.ReportCritical == nil {
		return held, err
	}
	result.Error, result.Cure = "not all conditions can be read in time", "run: taskledger status"
	return p.config.ReportCritical(ctx)
}

func notReady(text, cure string) Readiness {
	return Readiness{Error: text, Cure: cure, Degraded: []Condition{}}
}
