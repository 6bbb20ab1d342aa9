package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/remote"
	"github.com/taskledger/taskledger/ledger"
)

// Limits that no configuration changes.
const (
	maxBatch        = 1000    // tasks of a batch
	maxBodyBytes    = 1 << 20 // of a request with one task, before and after decompression
	maxBatchBytes   = 8 << 20 // of a batch
	maxList         = 1000    // items of a page
	maxWait         = 50 * time.Second
	maxTokens       = 10_000 // not counting revoked ones
	MaxHeaderBytes  = 32 << 10
	maxURLBytes     = 16 << 10  // a cursor contains the ids of all unfinished transactions
	maxPageBytes    = 8 << 20   // of the data of a page's events
	maxPastBytes    = 512 << 10 // of a page of a stream that catches up
	maxAnswersBytes = 64 << 20  // of the large answers that slow clients have not read, in this process
	largeAnswer     = 64 << 10
	maxStatsMinutes = 24 * 60
)

// Times of a server's connections. Use ReadHeaderTimeout and IdleTimeout for the [http.Server].
const (
	ReadHeaderTimeout = 5 * time.Second
	IdleTimeout       = 2 * time.Minute

	databaseTimeout = 15 * time.Second
	// keepAlive is the interval of comments on a stream without events. They show both sides that it is alive.
	keepAlive = 15 * time.Second
)

// Config configures a [Handler].
type Config struct {
	// DB is the primary. Its login needs the role api, and the roles of the calls that it serves. Required.
	DB *pgxpool.Pool
	// Waiter waits for tasks to finish: an outbox.Waiter, which is woken over NATS. Default: the API's tail of the
	// feed, which takes some milliseconds longer.
	Waiter ledger.Waiter
	// Work gives tasks to workers that ask by POST /v1/work. The handler does not drain it. Default: these calls are
	// refused.
	Work remote.Gateway

	// Archived reads an archived task with its events from the files of the archive. Default: a request for one is
	// answered with where its events are.
	Archived func(context.Context, *ledger.ArchivedError) (ledger.Task, []ledger.Event, error)

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
	// Report reads the answer of GET /v1/status, at most once a second. Default: [health.Read] without the
	// stream and the alarms.
	Report func(context.Context) (health.Report, error)
	// Version is the answer of GET /version. Default: no members.
	Version any
	// Logger logs failures of the server. Default: [slog.Default].
	Logger *slog.Logger

	bounds bounds
}

// bounds are limits that only tests change.
type bounds struct {
	// waiting is the maximum number of waiting requests and streams, in this process. One caller may use at most half
	// of them. Default: 20,000.
	waiting int
	// streamBytes is the maximum size of events in memory for streams, in this process: once for new events that wait
	// for slow streams, and once for past events that streams are reading. Beyond it, streams that are too far behind
	// end, and so do the streams that have been reading a page of the past for the longest time. Default: 16 MiB.
	streamBytes int
	// read is the maximum time for receiving the body of a request. Default: 15 s.
	read time.Duration
	// write is the maximum time in which a client must read an answer, or the part of a stream that was sent. Default:
	// 10 s.
	write time.Duration
}

func (b bounds) withDefaults() bounds {
	return bounds{
		waiting: cmp.Or(b.waiting, 20_000), streamBytes: cmp.Or(b.streamBytes, 16<<20),
		read: cmp.Or(b.read, 15*time.Second), write: cmp.Or(b.write, 10*time.Second),
	}
}

// Proxy is a proxy that authenticates callers. The zero value is no proxy.
type Proxy struct {
	// From lists the addresses of the proxy. The header of other peers is ignored.
	From []netip.Prefix
	// Header contains the name of the caller, which needs a token without a secret. Default: X-Forwarded-User.
	Header string
	// Role is the role of callers that never had a token. A caller whose token was revoked or has expired is refused.
	// Default: none, callers without a token are refused.
	Role Role
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	fault := func(isFault bool, format string, a ...any) {
		if isFault {
			faults = append(faults, fmt.Errorf("api: "+format, a...))
		}
	}
	fault(c.DB == nil, "DB is required")
	fault(c.Rate < 0, "Rate must not be negative, got %d", c.Rate)
	fault(c.Proxy.Role != "" && !c.Proxy.Role.isValid(), "Proxy.Role must be %s, got %q", roleNames(), c.Proxy.Role)
	fault(len(c.Proxy.From) == 0 && (c.Proxy.Header != "" || c.Proxy.Role != ""), "Proxy.From is required for a proxy")
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.Rate == 0 {
		c.Rate = 10_000
	}
	c.bounds = c.bounds.withDefaults()
	if c.Proxy.Header == "" {
		c.Proxy.Header = "X-Forwarded-User"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
