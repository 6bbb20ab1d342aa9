package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/health"
)

const (
	// timeout bounds the statements of a request.
	timeout = 15 * time.Second
	// maxKeptAge is the age up to which a report of health, and the numbers in the menu, serve further requests.
	maxKeptAge = 2 * time.Second
	// maxFormBytes bounds the body of a form.
	maxFormBytes = 1 << 20
	// traceID stands for the ID of a trace in Config.TraceURL.
	traceID = "{trace_id}"
)

// Config configures a [Handler].
type Config struct {
	// DB is the primary. Its login needs the roles api, reader and operator of the database. Required.
	DB *pgxpool.Pool
	// API authenticates the callers, streams events, and changes tasks. Required.
	API *api.Handler
	// Report reads the state of the services. Default: [health.Read] without the stream.
	Report func(context.Context) (health.Report, error)
	// Checks examines the database, NATS, rights and settings. It is called at most every 30 s, while pages are read.
	// Default: no checks.
	Checks func(context.Context) []Check
	// Base is the path where the console is mounted. It begins and ends with a slash. Default: /.
	Base string
	// Zone is the time zone of the pages. Default: UTC.
	Zone *time.Location
	// Hide reports whether the values of the members of this name are hidden: in args, results, and other data of
	// events. Default: [IsSecret].
	Hide func(name string) bool
	// IsBehindTLS marks cookies as Secure although the requests come without TLS, from a proxy. Default: false.
	IsBehindTLS bool
	// TraceURL is the address of a trace, with {trace_id} in place of its ID: the page of a task links to it. Default:
	// no link.
	TraceURL string
	// Version is the program's version, for the page System. Default: none.
	Version string
	// Logger logs failures of the server. Default: [slog.Default].
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("console: DB is required"))
	}
	if c.API == nil {
		faults = append(faults, errors.New("console: API is required"))
	}
	if c.Base != "" {
		faults = append(faults, checkBase(c.Base))
	}
	if t := c.TraceURL; t != "" {
		u, err := url.Parse(t)
		isWeb := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		if !isWeb || !strings.Contains(t, traceID) {
			faults = append(faults,
				fmt.Errorf("console: TraceURL must be an http or https URL with %s, got %q", traceID, t))
		}
	}
	return errors.Join(faults...)
}

// checkBase returns an error if the path is not one where a console can be mounted.
func checkBase(b string) error {
	if !strings.HasPrefix(b, "/") || !strings.HasSuffix(b, "/") || strings.Contains(b, "//") {
		return fmt.Errorf("console: Base must begin and end with one slash, got %q", b)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Report == nil {
		var numbers health.Numbers
		c.Report = func(ctx context.Context) (health.Report, error) {
			return health.Read(ctx, health.Config{DB: c.DB, Numbers: &numbers})
		}
	}
	if c.Base == "" {
		c.Base = "/"
	}
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	if c.Hide == nil {
		c.Hide = IsSecret
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
