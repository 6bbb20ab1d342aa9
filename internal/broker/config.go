package broker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

//go:embed sql/installation.sql
var installationSQL string

// defaultTTL is long beside a pause of a process, because another server has to be filled from the ledger. A process
// that has ended is replaced sooner: its lock is gone.
const defaultTTL = 15 * time.Second

// Config configures a [Server].
type Config struct {
	// DB is the primary, with a login that has the role relay. Required. The server keeps one more connection open.
	DB *pgxpool.Pool
	// Dir is the directory of the server's data. Required.
	Dir string
	// Listen is where the server listens, HOST:PORT or HOST. Outside of loopback it requires TLS of its clients.
	// Default: 127.0.0.1. Default of the port: that of the last start, else a free one.
	Listen string
	// Advertise is the address that clients connect to, HOST:PORT or HOST. Default: that of Listen. Required if Listen
	// has no address of this machine, as 0.0.0.0.
	Advertise string
	// Peers are all members of a cluster, this process among them: where their servers listen for each other,
	// HOST:PORT or HOST. 3 or 5. Default: the server is alone. Default of the port: 6222.
	Peers []string
	// ClusterListen is where the server listens for its peers, HOST:PORT or HOST. If Peers have the advertised host
	// several times, this process is the one with its port. Default: the host of Listen, and the port in Peers.
	ClusterListen string
	// TTL is how long after the last renewal another process takes over from one that hangs. Default: 15 s.
	TTL time.Duration
	// Logger receives what the server does. Default: disabled.
	Logger *slog.Logger
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if c.DB == nil {
		faults = append(faults, errors.New("DB is required"))
	}
	if c.Dir == "" {
		faults = append(faults, errors.New("Dir is required"))
	}
	if c.TTL < 0 {
		faults = append(faults, fmt.Errorf("TTL must be at least 0s, got %s", c.TTL))
	}
	if err := c.CheckAddresses(); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("NATS server: %w", errors.Join(faults...))
	}
	return nil
}

// CheckAddresses returns the first fault of the addresses.
func (c Config) CheckAddresses() error {
	a, err := c.addresses()
	if err == nil {
		_, err = c.cluster(a)
	}
	return err
}

func (c Config) withDefaults() Config {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// addresses are where a server listens and what its clients connect to.
type addresses struct {
	host, port       string // port "": any
	advertised       string // host
	advertisedPort   string // "": that of the server
	isOnlyOnLoopback bool
}

func (c Config) addresses() (a addresses, err error) {
	a.host, a.port = split(c.Listen)
	a.advertised, a.advertisedPort = split(c.Advertise)
	if a.host == "" && c.Listen == "" {
		a.host = "127.0.0.1"
	}
	ip := net.ParseIP(a.host)
	a.isOnlyOnLoopback = a.host == "localhost" || ip != nil && ip.IsLoopback()
	if a.host == "" || ip != nil && ip.IsUnspecified() {
		if a.advertised == "" {
			return a, errors.New("Advertise must be the address of this machine for clients, if Listen is not one: " +
				"set --advertise")
		}
		if a.host == "" {
			a.host = "0.0.0.0"
		}
	} else if a.advertised == "" {
		a.advertised = a.host
	}
	for _, port := range []string{a.port, a.advertisedPort} {
		if _, err := net.LookupPort("tcp", port); port != "" && err != nil {
			return a, fmt.Errorf("a port must be between 1 and 65535, got %q", port)
		}
	}
	return a, nil
}

// split returns the host and the port of an address, whose port may be missing.
func split(address string) (host, port string) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		return host, port
	}
	return address, ""
}

// Dir returns the directory of the server of a ledger below a directory that several ledgers may share.
func Dir(ctx context.Context, db pgquery.Querier, parent string) (string, error) {
	installation := ""
	if _, err := pgquery.Row(ctx, db, installationSQL, nil, &installation); err != nil {
		return "", pgerr.Explain("read the installation", err)
	}
	return filepath.Join(parent, "nats-"+installation), nil
}

// holder returns a name of this process for operators.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
