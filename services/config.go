package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/seal/sealer"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/outbox"
)

// Conns is how many connections to PostgreSQL the services of [Run] use, including the HTTP server.
const Conns = 18

// MinSleepAfter is the least [Config].SleepAfter.
const MinSleepAfter = 100 * time.Millisecond

// Connector opens a connection to NATS, with options in addition to the connector's own. The services open
// several connections. A connection whose credentials NATS has refused stays closed.
type Connector func(options ...nats.Option) (*nats.Conn, error)

// ToNATS returns a connector to the server at an address. Its connections reconnect forever, even if the server
// is unavailable at first.
func ToNATS(url string, options ...nats.Option) Connector {
	return func(more ...nats.Option) (*nats.Conn, error) {
		all := append([]nats.Option{nats.Name("taskledger"), nats.RetryOnFailedConnect(true)}, options...)
		return stream.Connect(url, append(all, more...)...)
	}
}

// ServerConfig configures the NATS server of a database. Its streams are files of this process. Other programs
// find its address and their credentials in the database. Its users keep their passwords.
type ServerConfig struct {
	// Dir is the server's data directory. Each database needs its own. Required.
	Dir string
	// Listen is where the server listens, HOST:PORT or HOST. Outside of loopback it requires TLS of its clients,
	// which find its certificate in the database. Default: 127.0.0.1, with the port of the last start.
	Listen string
	// Advertise is the address that clients connect to, HOST:PORT or HOST. Default: Listen.
	Advertise string
	// Peers makes the servers of 3 or 5 processes one cluster, whose streams have 3 replicas. Work continues, and
	// no message is lost, while one of 3 servers is down, or two of 5.
	//
	// Peers lists where all servers listen for each other, HOST:PORT or HOST, including this process by its
	// advertised host. Every process needs the same list, and stands by if its list differs. Each needs its own
	// Dir. Default: one process runs the server, and the others stand by. Default of the port: 6222.
	Peers []string
	// ClusterListen is where the server listens for its peers, HOST:PORT or HOST. If the advertised host occurs
	// several times in Peers, the port of ClusterListen identifies this process. Default: the host of Listen, and
	// the port in Peers.
	ClusterListen string
}

// Config configures [Run].
type Config struct {
	// DB is the primary. Its login needs the role relay. Run uses at most [Conns] of its connections at a time.
	// Required.
	DB *pgxpool.Pool
	// NATS opens connections as the user relay. Default: Run runs the NATS server of this database, or stands by
	// for the process that runs it.
	NATS Connector
	// Server configures that server. It is ignored if NATS is set.
	Server ServerConfig
	// Stream configures the stream that the relay creates. An existing stream does not change.
	Stream outbox.StreamConfig
	// StreamOff disables the relay and the stream LEDGER. Workers and readers of the ledger do not need them;
	// waits for tasks poll instead. All processes of a ledger need the same setting. Default: the relay runs.
	StreamOff bool
	// Latency is how long events and outcomes gather while tasks arrive evenly, see [dispatcher.Config]. Default:
	// 5 ms.
	Latency time.Duration
	// LeaseTTL is how long after its last renewal a relay that hangs is replaced. Default: 5 s.
	LeaseTTL time.Duration
	// AckTimeout is how long the relay waits for JetStream to store a page of messages. Default:
	// 5 s.
	AckTimeout time.Duration
	// RelayHooks are called by the relay.
	RelayHooks []outbox.Hook
	// Alarms is the file of `serve --alarms` as JSON: the rules and receivers of alarms, see docs/alarms.md. Default:
	// no alarms are sent.
	Alarms []byte
	// Seal is the file of `serve --seal` as JSON: events are sealed, and checkpoints published, see docs/audit.md. The
	// login of DB then needs the role archiver too. Default: no events are sealed.
	Seal []byte
	// ArchiveAfter is how long after their end tasks are removed from the tables, except tasks of kinds with a setting
	// (taskledger archive --keep). The login of DB then needs the role archiver too. Default: they stay.
	ArchiveAfter time.Duration
	// ArchiveTo is the archive in which their events are stored before: a directory, or a place in an object store.
	// Default: none.
	ArchiveTo string
	// OpenObjects opens a place in an object store, if Seal or ArchiveTo names one. Default: none can be named.
	OpenObjects func(place string) (Objects, error)
	// Listener is where the HTTP server answers /healthz, /readyz and /metrics. Run closes it. Default: no HTTP
	// server.
	Listener net.Listener
	// Handlers serve further paths there. A path that ends with a slash includes all paths that begin with it. No
	// path may be a prefix of another. A handler that streams ends when Run's ctx is done.
	Handlers map[string]http.Handler
	// API serves all other paths there: the HTTP API and the console. Run drains it when ctx is done. Default: other
	// paths are not found.
	API *Handler
	// Push is the file of `serve --push` as JSON: tasks of its kinds are sent to HTTP servers, see
	// [Handler.PushTasks]. Default: none are sent.
	Push []byte
	// drain is called when ctx is done, while the HTTP server still answers. Default: API.Drain.
	drain func()
	// awaitNATS waits for the NATS server of this database. Default: no wait.
	awaitNATS func(context.Context) error
	// SleepAfter is how long a ledger must have nothing to do before the services stop and end their sessions, so that
	// a managed database may suspend. They start again for a message (see [taskledger.Client.Wake]), for a request
	// to the HTTP server except a probe, a scrape, the poll of a known worker, or one to API without credentials, and
	// when the first timer or schedule is due. At least 100 ms. Default: they never sleep.
	SleepAfter time.Duration
	// SleepAtMost is the longest sleep: how late a task may begin whose producer sends no message. Default: 1 h.
	SleepAtMost time.Duration
	// sleeper stops and starts the services; nil: they never sleep.
	sleeper *sleeper
	// idlePools are pools of the process, besides those of the services, whose sessions end while it sleeps.
	idlePools []*pgxpool.Pool
	// Logger receives the log lines of the services, each with its service's name. Default: [slog.Default].
	Logger *slog.Logger
	// Describe returns the text of an error for the log, and its cure. Default: the text of the error.
	Describe func(error) (text, cure string)
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("services: DB is required"))
	}
	if c.NATS == nil && c.Server.Dir == "" {
		faults = append(faults, errors.New("services: NATS or Server.Dir is required"))
	}
	if c.Latency < 0 || c.Latency > time.Second {
		faults = append(faults, fmt.Errorf("services: Latency must be between 0s and 1s, got %s", c.Latency))
	}
	if c.LeaseTTL < 0 || c.AckTimeout < 0 {
		faults = append(faults, errors.New("services: LeaseTTL and AckTimeout must be at least 0s"))
	}
	if c.Listener == nil && len(c.Handlers) > 0 {
		faults = append(faults, errors.New("services: Handlers need a Listener"))
	}
	if c.Listener == nil && c.API != nil {
		faults = append(faults, errors.New("services: API needs a Listener"))
	}
	if c.Push != nil {
		if c.API == nil || c.API.work == nil {
			faults = append(faults, errors.New("services: Push needs API, with WorkDB and WorkNATS"))
		}
		if _, err := webhooks.ParsePush(c.Push); err != nil {
			faults = append(faults, fmt.Errorf("services: Push: %w", err))
		}
	}
	if c.Alarms != nil {
		if _, err := alarm.Parse(c.Alarms); err != nil {
			faults = append(faults, fmt.Errorf("services: Alarms: %w", err))
		}
	}
	if c.SleepAfter != 0 && c.SleepAfter < MinSleepAfter {
		faults = append(faults, fmt.Errorf("services: SleepAfter must be at least %s, got %s", MinSleepAfter,
			c.SleepAfter))
	}
	if c.SleepAtMost < 0 || c.SleepAtMost > 0 && c.SleepAtMost < c.SleepAfter {
		faults = append(faults, fmt.Errorf("services: SleepAtMost must be at least SleepAfter, got %s", c.SleepAtMost))
	}
	if c.SleepAtMost != 0 && c.SleepAfter == 0 {
		faults = append(faults, errors.New("services: SleepAtMost needs SleepAfter"))
	}
	for _, db := range c.pools() {
		if kept := db.Config(); c.SleepAfter > 0 && max(kept.MinConns, kept.MinIdleConns) > 0 {
			faults = append(faults, errors.New("services: SleepAfter needs pools that keep no connection: "+
				"leave out pool_min_conns and pool_min_idle_conns"))
			break
		}
	}
	if c.ArchiveAfter < 0 {
		faults = append(faults, errors.New("services: ArchiveAfter must be at least 0s"))
	}
	if c.ArchiveTo != "" && c.ArchiveAfter == 0 {
		faults = append(faults, errors.New("services: ArchiveTo needs ArchiveAfter"))
	}
	if strings.Contains(c.ArchiveTo, "://") && c.OpenObjects == nil {
		faults = append(faults, errors.New("services: ArchiveTo in an object store needs OpenObjects"))
	}
	if c.Seal != nil {
		if _, err := sealer.Parse(c.Seal); err != nil {
			faults = append(faults, fmt.Errorf("services: Seal: %w", err))
		}
	}
	if err := c.Stream.Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// pools returns the pools whose sessions end while the services sleep.
func (c Config) pools() []*pgxpool.Pool {
	all := slices.Clone(c.idlePools)
	if c.DB != nil {
		all = append(all, c.DB)
	}
	if c.API != nil {
		all = append(all, c.API.config.DB)
		if c.API.config.WorkDB != nil {
			all = append(all, c.API.config.WorkDB)
		}
	}
	return all
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.awaitNATS == nil {
		c.awaitNATS = func(context.Context) error { return nil }
	}
	if c.drain == nil {
		c.drain = func() {}
		if c.API != nil {
			c.drain = c.API.Drain
		}
	}
	if c.Describe == nil {
		c.Describe = func(err error) (text, cure string) { return err.Error(), "" }
	}
	return c
}
