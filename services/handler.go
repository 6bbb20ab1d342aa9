package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/console"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// HandlerConfig configures [NewHandler].
type HandlerConfig struct {
	// DB is the primary. Its login needs the role api, and the roles of the calls that it serves: reader, producer and
	// operator. Required.
	DB *pgxpool.Pool
	// NATS is a connection of the user relay, which wakes requests that wait for tasks, and reads the state of the
	// stream. Default: waiting requests read the ledger, and the state has no stream.
	NATS *nats.Conn
	// PollEvery is the time between two reads of the tasks that requests wait for, for a ledger whose stream is off.
	// Default: 5 s.
	PollEvery time.Duration
	// WorkDB and WorkNATS give tasks to workers that ask by POST /v1/work. WorkDB is another pool, so that outcomes do
	// not wait for requests; its login needs the role worker. WorkNATS is a connection of the user worker. Default:
	// these calls are refused.
	WorkDB   *pgxpool.Pool
	WorkNATS *nats.Conn

	// Anonymous admits requests without authentication, as the caller "anonymous" with the role admin. It works only
	// for connections to a loopback address whose Host is a loopback address, too. Default: disabled.
	Anonymous bool
	// Certificates admits verified client certificates. The common name of the subject, or else the first DNS name, is
	// the name of the caller, which needs a token without a secret. Default: disabled.
	Certificates bool
	// Proxy admits the callers that a proxy has authenticated. Default: disabled.
	Proxy Proxy
	// Rate is the maximum number of requests a second, for callers whose token sets no rate; a burst may double it.
	// Default: 10,000.
	Rate int

	// Base is the path where the console is mounted. It begins and ends with a slash. Default: /.
	Base string
	// Zone is the time zone of the console's pages. Default: UTC.
	Zone *time.Location
	// Hide reports whether the console hides the values of the members of this name: in args, results, and other data
	// of events. Default: names that look like a secret, such as password.
	Hide func(name string) bool
	// IsBehindTLS marks cookies as Secure although the requests come without TLS, from a proxy. Default: false.
	IsBehindTLS bool
	// TraceURL is the address of a trace, with {trace_id} in place of its ID: the console's page of a task links to it.
	// Default: no link.
	TraceURL string
	// Checks examines the installation, for the console. It is called at most every 30 s, while pages are read.
	// Default: no checks.
	Checks func(context.Context) []Check

	// ArchiveTo is the archive in which archived tasks are looked for first. Default: the place that the ledger has
	// recorded for each of them.
	ArchiveTo string
	// OpenObjects opens an archive in an object store. Default: the answer is where the events of its tasks are.
	OpenObjects func(place string) (Objects, error)

	// Version is the answer of GET /version. Default: no members.
	Version any
	// Logger logs failures of the server. Default: [slog.Default].
	Logger *slog.Logger
}

// Proxy is a proxy that authenticates callers. The zero value is no proxy.
type Proxy struct {
	// From lists the addresses of the proxy. The header of other peers is ignored.
	From []netip.Prefix
	// Header contains the name of the caller, which needs a token without a secret. Default: X-Forwarded-User.
	Header string
	// Role is the role of callers that never had a token. A caller whose token was revoked or has expired is refused.
	// Default: none, callers without a token are refused.
	Role string
}

// Check is the result of an examination.
type Check struct {
	Name  string
	Level string // ok, warning or failure
	Text  string // one sentence
	Cure  string // a command or a sentence; "": none is needed
}

// Validate reports every fault at once.
func (c HandlerConfig) Validate() error {
	var faults []error
	if (c.WorkDB == nil) != (c.WorkNATS == nil) {
		faults = append(faults, errors.New("services: WorkDB and WorkNATS must be set together"))
	}
	if err := c.api().Validate(); err != nil {
		faults = append(faults, fmt.Errorf("services: %w", err))
	}
	shown := console.Config{DB: &pgxpool.Pool{}, API: &api.Handler{}, Base: c.Base, // c.DB is examined above
		TraceURL: c.TraceURL}
	if err := shown.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("services: %w", err))
	}
	return errors.Join(faults...)
}

func (c HandlerConfig) api() api.Config {
	return api.Config{DB: c.DB, Anonymous: c.Anonymous, Certificates: c.Certificates, Rate: c.Rate,
		Proxy:   api.Proxy{From: c.Proxy.From, Header: c.Proxy.Header, Role: api.Role(c.Proxy.Role)},
		Version: c.Version, Logger: c.Logger}
}

// archived returns the function that reads archived tasks.
func (c HandlerConfig) archived() func(context.Context, *ledger.ArchivedError) (ledger.Task, []ledger.Event, error) {
	source := archive.Source{Place: c.ArchiveTo, Open: func(place string) (archive.Store, error) {
		return openArchive(place, c.OpenObjects)
	}}
	return func(ctx context.Context, t *ledger.ArchivedError) (task ledger.Task, events []ledger.Event, err error) {
		if events, err = source.Events(ctx, t); err == nil {
			task, err = archive.Task(t, events)
		}
		return task, events, err
	}
}

// Handler is the HTTP API at /v1/ and /version, and the web console at all other paths. docs/http.md and
// docs/console.md describe them. Set it in [Config], or mount it in a server of the program:
//
//	handler, err := services.NewHandler(services.HandlerConfig{DB: pool})
//	mux.Handle("/v1/", handler)
//	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
//		MaxHeaderBytes: 32 << 10}
//	…
//	handler.Drain()
//	err = server.Shutdown(ctx)
//
// It is safe for concurrent use.
type Handler struct {
	config  HandlerConfig
	api     *api.Handler
	console *console.Handler
	work    remote.Gateway // nil: work over HTTP is disabled

	numbers health.Numbers
	report  atomic.Pointer[func(context.Context) (health.Report, error)] // of Run; nil: the handler reads it
}

// NewHandler returns a handler. It returns the error of [HandlerConfig.Validate].
func NewHandler(c HandlerConfig) (*Handler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	h := &Handler{config: c}
	served := c.api()
	served.Report, served.Archived = h.read, c.archived()
	if c.NATS != nil || c.PollEvery != 0 {
		waiter, err := outbox.NewWaiter(outbox.WaiterConfig{DB: c.DB, NATS: c.NATS, PollEvery: c.PollEvery,
			Logger: c.Logger})
		if err != nil {
			return nil, err
		}
		served.Waiter = waiter
	}
	var err error
	if c.WorkDB != nil {
		h.work, err = remote.New(remote.Config{DB: c.WorkDB, NATS: c.WorkNATS, Logger: c.Logger})
		if err != nil {
			return nil, err
		}
		served.Work = h.work
	}
	if h.api, err = api.New(served); err != nil {
		return nil, err
	}
	shown := console.Config{DB: c.DB, API: h.api, Report: h.read, Base: c.Base, Zone: c.Zone, Hide: c.Hide,
		IsBehindTLS: c.IsBehindTLS, TraceURL: c.TraceURL, Logger: c.Logger}
	if c.Version != nil {
		shown.Version = fmt.Sprint(c.Version)
	}
	if c.Checks != nil {
		shown.Checks = func(ctx context.Context) (all []console.Check) {
			for _, f := range c.Checks(ctx) {
				all = append(all, console.Check{Name: f.Name, Level: console.CheckLevel(f.Level), Text: f.Text,
					Cure: f.Cure})
			}
			return all
		}
	}
	h.console, err = console.New(shown)
	return h, err
}

// read reads the state of the services.
func (h *Handler) read(ctx context.Context) (health.Report, error) {
	if of := h.report.Load(); of != nil {
		return (*of)(ctx)
	}
	return health.Read(ctx, healthConfig(h.config.DB, h.config.NATS, &h.numbers))
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/version" || strings.HasPrefix(r.URL.Path, "/v1/") {
		h.api.ServeHTTP(w, r)
		return
	}
	h.console.ServeHTTP(w, r)
}

// refuses reports whether the handler refuses a request without reading the database: nothing in it may name a caller.
func (h *Handler) refuses(r *http.Request) bool {
	isBearer := slices.ContainsFunc(r.Header["Authorization"], func(header string) bool {
		scheme, _, _ := strings.Cut(header, " ")
		return strings.EqualFold(scheme, "Bearer")
	})
	return !isBearer && !console.HasToken(r) && !h.api.IsNamed(r) &&
		(r.Method == http.MethodGet || r.Method == http.MethodHead || strings.HasPrefix(r.URL.Path, "/v1/"))
}

// Drain ends all streams and all waiting requests, with the answer that they would give when their time is up. Later
// requests that would wait are answered at once. It begins no further task, and returns when no task is at a worker
// that works over HTTP. Call it before [http.Server.Shutdown]; [Run] calls it.
func (h *Handler) Drain() {
	h.api.Drain()
	if h.work != nil {
		h.work.Drain()
	}
}

// rest ends the connections of workers until one asks again.
func (h *Handler) rest() {
	if h.work != nil {
		h.work.Rest()
	}
}

// Admit authenticates a request for another handler of the program, which shares the API's callers. It returns the
// caller's name. The error is a [*client.Problem] unless role, or a higher one, is the caller's: viewer, producer,
// worker, operator or admin.
func (h *Handler) Admit(r *http.Request, role string) (name string, err error) {
	c, err := h.api.Admit(r, api.Role(role))
	if err != nil {
		return "", err
	}
	return c.Name(), nil
}

// PushTasks sends the tasks of the kinds in a file to HTTP servers until ctx is done and running requests have ended,
// and then returns nil. file is the file of taskledger serve --push as JSON, see docs/webhooks.md. A server can end a
// task that it has accepted by the handler's API. The handler needs WorkDB and WorkNATS.
//
// It retries through outages. It returns an error that names every fault if the file is invalid.
func (h *Handler) PushTasks(ctx context.Context, file []byte) error {
	if h.work == nil {
		return errors.New("services: PushTasks needs HandlerConfig.WorkDB and WorkNATS")
	}
	f, err := webhooks.ParsePush(file)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	p, err := webhooks.NewPusher(webhooks.PusherConfig{DB: h.config.DB, Work: h.work, File: f, Logger: h.config.Logger})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}
