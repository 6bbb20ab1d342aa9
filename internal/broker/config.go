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

// defaultTTL is long compared with the pause of a process, because a new server has to be filled from the ledger. A
// process that has ended is replaced sooner, because its lock is gone.
const defaultTTL = 15 * time.Second

// Config configures a [Server].
type Config struct {
	// DB is the primary, with a login that is a member of the role relay. Required. The server keeps one more
	// connection open.
	DB *pgxpool.Pool
	// Dir is the directory of the server's data. Required.
	Dir string
	// Listen is the address on which the server listens, HOST:PORT or HOST. On an address outside of loopback, it
	// requires TLS of its clients. Default: 127.0.0.1, with the last start's port, or a free one.
	Listen string
	// Advertise is the address that clients connect to, HOST:PORT or HOST. Default: Listen. Required if Listen is not
	// an address of this machine, such as 0.0.0.0.
	Advertise string
	// Peers are the addresses of all members of a cluster, including this process: HOST:PORT or HOST. A cluster has 3
	// or 5 members. Default: no cluster. Default port: 6222.
	Peers []string
	// ClusterListen is the address on which the server listens for its peers, HOST:PORT or HOST. If several Peers are
	// on the advertised host, this process is the peer with ClusterListen's port. Default: the host of Listen, and the
	// port in Peers.
	ClusterListen string
	// TTL is how long after the last renewal another process takes over from a process that hangs. Default: 15 s.
	TTL time.Duration
	// Logger receives the server's log. Default: disabled.
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
	advertisedPort   string // "": the server's port
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

// Dir returns the directory of a ledger's server, within a directory that several ledgers may share.
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
