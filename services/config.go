package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/health"
	"github.com/taskledger/taskledger/health/alarm"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger/feed"
	"github.com/taskledger/taskledger/outbox"
)

// Conns is how many connections to PostgreSQL the services of [Run] use, with the HTTP server.
const Conns = 16

// Connector opens a connection to NATS. The services open several: one that NATS has refused for its credentials stays
// closed. The options are added to those of the connector.
type Connector func(options ...nats.Option) (*nats.Conn, error)

// ToNATS returns a connector to the server at an address. Its connections reconnect forever, also if the server is
// unavailable at first.
func ToNATS(url string, options ...nats.Option) Connector {
	return func(more ...nats.Option) (*nats.Conn, error) {
		all := append([]nats.Option{nats.Name("taskledger"), nats.RetryOnFailedConnect(true)}, options...)
		return stream.Connect(url, append(all, more...)...)
	}
}

// ServerConfig configures the NATS server of a database: the streams are in files of the process, and the other
// programs find the address and their credentials in the database. Its users keep their passwords.
type ServerConfig struct {
	// Dir is the directory of the server's data, of which each database needs one of its own. Required.
	Dir string
	// Listen is where the server listens, HOST:PORT or HOST. Outside of loopback it requires TLS of its clients, which
	// find its certificate in the database. Default: 127.0.0.1, with the port of the last start.
	Listen string
	// Advertise is the address that clients connect to, HOST:PORT or HOST. Default: that of Listen.
	Advertise string
	// Peers makes the servers of 3 or 5 processes one cluster, whose streams have 3 replicas: work goes on, and no
	// message is lost, while one of 3 is away, or two of 5. It lists where all of them listen for each other,
	// HOST:PORT or HOST, this process among them by its advertised host. It is the same for all: a process with other
	// peers stands by. Each process needs a Dir of its own. Default: one process runs the server, and the others stand
	// by. Default of the port: 6222.
	Peers []string
	// ClusterListen is where the server listens for its peers, HOST:PORT or HOST. If Peers have the advertised host
	// several times, this process is the one with its port. Default: the host of Listen, and the port in Peers.
	ClusterListen string
}

// Config configures [Run].
type Config struct {
	// DB is the primary, with a login that has the role relay. Required. Run uses at most [Conns] of its
	// connections at a time.
	DB *pgxpool.Pool
	// NATS opens connections as the user relay. Default: Run runs the NATS server of this database, or stands by for
	// the process that does.
	NATS Connector
	// Server configures that server. It is not used if NATS is set.
	Server ServerConfig
	// Stream is the configuration of a stream that the relay creates. It changes no existing one.
	Stream outbox.StreamConfig
	// StreamOff leaves out the relay and the stream LEDGER. Workers and what reads the ledger do not need them; waits
	// for tasks poll. Default: the relay runs. All processes of a ledger need the same.
	StreamOff bool
	// Latency is how long events and outcomes gather while tasks come evenly, see [dispatcher.Config]. Default: 5 ms.
	Latency time.Duration
	// LeaseTTL is how long after the last renewal another relay takes over from one that hangs. Default: 5 s.
	LeaseTTL time.Duration
	// AckTimeout is how long the relay waits for JetStream to store a page of messages. Default:
	// [outbox.DefaultAckTimeout].
	AckTimeout time.Duration
	// RelayHooks are called by the relay.
	RelayHooks []outbox.Hook
	// Alarms has the rules and receivers of alarms. Default: no alarms are sent.
	Alarms alarm.File
	// Listener is where the HTTP server answers /healthz, /readyz and /metrics. Run closes it. Default: there is no
	// HTTP server.
	Listener net.Listener
	// Handlers answer further requests there, by their path, or by the beginning of it if that ends with a slash. None
	// begins as another one does. A handler that streams ends when the ctx of Run is done.
	Handlers map[string]http.Handler
	// Console makes the handler of all other paths, with the function by which it reads the state of the services.
	// Default: other paths are not found.
	Console func(report func(context.Context) (health.Report, error)) (http.Handler, error)
	// awaitNATS waits until this database has a NATS server. Default: there is no need to.
	awaitNATS func(context.Context) error
	// findings are those of the feeds that read DB in this process. Default: [feed.Together].
	findings *feed.Findings
	// Logger receives what the services do. Each line has the name of its service. Default: [slog.Default].
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
	if c.Listener == nil && c.Console != nil {
		faults = append(faults, errors.New("services: Console needs a Listener"))
	}
	if err := c.Stream.Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.awaitNATS == nil {
		c.awaitNATS = func(context.Context) error { return nil }
	}
	if c.Describe == nil {
		c.Describe = func(err error) (text, cure string) { return err.Error(), "" }
	}
	return c
}
