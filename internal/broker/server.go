package broker

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/natsclient"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/reserve"
)

var (
	//go:embed sql/lock.sql
	lockSQL string
)

// ErrPooler is returned if the connection to the database goes through a pooler that gives each transaction another
// session.
var ErrPooler = errors.New("the NATS server of taskledger serve needs a direct connection to PostgreSQL, " +
	"because a pooler in transaction mode loses its lock: name PostgreSQL itself in DATABASE_URL, or set NATS_URL")

// ErrAsleep is the cause of a context with which [Server.Run] leaves the NATS server running.
var ErrAsleep = errors.New("the process sleeps")

var errStopped = errors.New("this process does not run the NATS server now")

// Server is the NATS server of a database in this process, or its standby.
type Server struct {
	config    Config
	addresses addresses
	cluster   *cluster // nil: the server is alone
	holder    string

	mu      sync.Mutex
	nats    *natsserver.Server // nil: not running
	missed  int                // renewals in a row at which nats had no majority of its cluster
	ca      string             // PEM; "": without TLS
	renewed time.Time          // when the lease was last renewed
}

// New returns a server that [Server.Run] runs.
func New(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	a, err := c.addresses()
	if err != nil {
		return nil, err
	}
	k, err := c.cluster(a)
	if err != nil {
		return nil, err
	}
	return &Server{
		config: c.withDefaults(), addresses: a, cluster: k, holder: holder() + "/" + strings.ToLower(rand.Text()[:8]),
	}, nil
}

// Run runs the server whenever this process holds the lease, until ctx is done. Then another process takes over at
// once. It retries through outages of PostgreSQL.
//
// If the cause of ctx is [ErrAsleep], the NATS server goes on without a connection to the database. Then call Run again
// when the process wakes, or [Server.Close]. Meanwhile, another process that stands by wakes this one, see
// [natsclient.Wake], and takes over if that fails.
//
// Errors: [ErrPooler]; [reserve.ErrHeld] if another process uses the directory and runs no server of this database.
func (s *Server) Run(ctx context.Context) error {
	s.resume()
	defer func() {
		if !isAsleep(ctx) {
			s.stop()
		}
	}()
	var delay loop.Backoff
	delay.Max = time.Second
	logged := ""
	for ctx.Err() == nil {
		err := s.serve(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrPooler), errors.Is(err, reserve.ErrHeld):
			return err
		case err == nil:
			logged = ""
			delay.Reset()
		case err.Error() != logged:
			logged = err.Error()
			s.config.Logger.WarnContext(ctx, "cannot run the NATS server; trying again", "error", err)
		}
		if s.isOverdue() {
			s.stop()
		}
		_ = loop.Sleep(ctx, delay.Next())
	}
	return nil
}

// isAsleep reports whether the process begins to sleep.
func isAsleep(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrAsleep) }

// resume gives a server that ran while the process slept the whole term to renew its lease.
func (s *Server) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = time.Now()
}

// Close stops a NATS server that runs while the process sleeps.
func (s *Server) Close() { s.stop() }

// isOverdue reports whether another process may have taken the lease. No other process runs the server of a member.
func (s *Server) isOverdue() bool {
	if s.cluster != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nats != nil && time.Since(s.renewed) > s.config.TTL
}

// serve keeps one connection open, with the lock that proves it. It returns when the connection or the lease is lost.
func (s *Server) serve(ctx context.Context) error {
	conn, nonce, err := s.prove(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	for first := true; ; first = false {
		if s.wakeOther(ctx, conn); ctx.Err() != nil {
			return nil // and takes no lease
		}
		holds, err := s.renew(ctx, conn, nonce)
		if err != nil {
			return err
		}
		if holds {
			break
		}
		s.stop() // another process holds the lease
		if first {
			if err := s.reportOther(ctx, conn); err != nil {
				return err
			}
		}
		if loop.Sleep(ctx, s.config.TTL/15) != nil {
			return nil
		}
	}
	if err := s.start(ctx, conn); err != nil {
		s.yield(ctx, conn)
		return err
	}
	for {
		holds, err := s.renew(ctx, conn, nonce)
		if err != nil {
			return err
		}
		if !holds {
			s.stop()
			return nil
		}
		err = waitOn(ctx, conn, s.config.TTL/5)
		if isAsleep(ctx) {
			return s.fallAsleep(ctx, conn, nonce)
		}
		if ctx.Err() != nil {
			s.stop()
			s.yield(ctx, conn)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// waitOn waits until d has passed, ctx is done or the connection is lost. Without the lock, clients find no server.
func waitOn(ctx context.Context, conn *pgx.Conn, d time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		_, err := conn.WaitForNotification(waiting)
		if waiting.Err() != nil {
			return nil
		}
		if err != nil {
			return pgerr.Explain("keep the lock of the NATS server", err)
		}
	}
}

// reportOther logs why this process does not hold the lease.
func (s *Server) reportOther(ctx context.Context, conn *pgx.Conn) error {
	holder, others, err := lease.BrokerWithOtherPeers(ctx, conn, s.cluster.String(), false)
	if err != nil {
		return err
	}
	if holder == "" {
		s.config.Logger.InfoContext(ctx, "another process runs the NATS server; this one stands by")
		return nil
	}
	s.config.Logger.WarnContext(ctx, "a NATS server of this database runs with other peers; this one stands by until "+
		"it has ended: start all processes with the same --peers",
		"peers", peersText(s.cluster.String()), "other_peers", peersText(others), "other", holder)
	return nil
}

// reportAlone logs why clients may not use the server: most members of its cluster are unavailable, or have other
// peers.
func (s *Server) reportAlone(ctx context.Context, conn *pgx.Conn) error {
	holder, others, err := lease.BrokerWithOtherPeers(ctx, conn, s.cluster.String(), true)
	if err != nil {
		return err
	}
	if holder == "" {
		s.config.Logger.WarnContext(ctx,
			"waits for most servers of the cluster: start the others with the same --peers",
			"peers", s.cluster.String())
		return nil
	}
	s.config.Logger.WarnContext(ctx, "waits for most servers of the cluster, and another server has other peers: "+
		"start all processes with the same --peers",
		"peers", s.cluster.String(), "other_peers", peersText(others), "other", holder)
	return nil
}

// peersText returns a list of peers for people.
func peersText(peers string) string {
	if peers == "" {
		return "none"
	}
	return peers
}

// prove opens a connection and takes the lock on it.
func (s *Server) prove(ctx context.Context) (_ *pgx.Conn, nonce int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.TTL)
	defer cancel()
	config := s.config.DB.Config().ConnConfig.Copy()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, 0, pgerr.Explain("connect", err)
	}
	defer func() {
		if err != nil {
			closeConn(conn)
		}
	}()
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	nonce = int64(binary.BigEndian.Uint64(random[:]) >> 1)
	backend := int64(0)
	if _, err := pgquery.Row(ctx, conn, lockSQL, []any{nonce}, &backend); err != nil {
		return nil, 0, pgerr.Explain("take the lock of the NATS server", err)
	}
	if uint32(backend) != conn.PgConn().PID() {
		return nil, 0, ErrPooler
	}
	return conn, nonce, nil
}

// renew takes or renews the lease, with the address if the server runs. A stop waits for it, and then yields the lease.
func (s *Server) renew(ctx context.Context, conn *pgx.Conn, nonce int64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.TTL/3)
	defer cancel()
	s.mu.Lock()
	row := lease.Broker{Nonce: nonce, Peers: s.cluster.String()}
	if s.nats != nil && s.hasMajority(ctx) {
		row.Address, row.CA = s.address(), s.ca
	}
	isAlone := s.nats != nil && s.missed == stillAlone
	s.mu.Unlock()
	begun := time.Now()
	holds, err := lease.TakeBroker(ctx, conn, s.cluster.member(), s.holder, s.config.TTL, row)
	if holds {
		s.mu.Lock()
		s.renewed = begun
		s.mu.Unlock()
	}
	if holds && isAlone && err == nil {
		err = s.reportAlone(ctx, conn)
	}
	return holds, err
}

// hasMajority reports whether clients may use the server: without a majority of its cluster it stores nothing. After
// two renewals without a majority it disconnects its clients, which then find another member. The caller holds mu.
func (s *Server) hasMajority(ctx context.Context) bool {
	if s.nats.HasMajority() {
		if s.missed > 1 {
			s.config.Logger.InfoContext(ctx, "connected to most servers of the cluster", "peers", s.cluster.String())
		}
		s.missed = 0
		return true
	}
	if s.missed++; s.missed == 2 {
		s.config.Logger.WarnContext(ctx, "not connected to most servers of the cluster; clients must use another",
			"peers", s.cluster.String())
		if err := s.nats.Disconnect(); err != nil {
			s.config.Logger.WarnContext(ctx, "cannot disconnect the clients", "error", err)
		}
	}
	return s.missed < 2
}

func (s *Server) yield(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.TTL/3)
	defer cancel()
	if err := lease.YieldBroker(ctx, conn, s.cluster.member(), s.holder); err != nil {
		s.config.Logger.WarnContext(ctx, "cannot release the lease of the NATS server; it expires",
			"expires_in", s.config.TTL, "error", err)
	}
}

// fallAsleep records that the server runs without this connection.
func (s *Server) fallAsleep(ctx context.Context, conn *pgx.Conn, nonce int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.TTL/3)
	defer cancel()
	s.mu.Lock()
	row := lease.Broker{Nonce: nonce, Peers: s.cluster.String(), Address: s.address(), CA: s.ca, Asleep: true}
	s.mu.Unlock()
	_, err := lease.TakeBroker(ctx, conn, s.cluster.member(), s.holder, 0, row)
	return err
}

// wakeOther wakes the process whose server sleeps, unless this process runs a server, and leaves it time to renew its
// lease.
func (s *Server) wakeOther(ctx context.Context, conn *pgx.Conn) {
	if s.cluster != nil || s.preferred() != "" {
		return
	}
	for begun := time.Now(); time.Since(begun) < s.config.TTL/5; {
		wasAsleep, err := natsclient.Wake(ctx, conn)
		if err != nil {
			s.config.Logger.InfoContext(ctx, "the NATS server of a process that slept does not answer; takes over",
				"error", err)
		}
		if !wasAsleep || loop.Sleep(ctx, s.config.TTL/300) != nil {
			return
		}
	}
}

// start starts the server, unless it runs.
func (s *Server) start(ctx context.Context, conn *pgx.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nats != nil {
		return nil
	}
	accounts, secret, err := s.readAccounts(ctx, conn)
	if err != nil {
		return err
	}
	c := natsserver.Config{
		Dir: s.config.Dir, Host: s.addresses.host, Port: s.port(), Accounts: accounts,
	}
	if s.ca = ""; !s.addresses.isOnlyOnLoopback {
		key, err := newKey()
		if err != nil {
			return err
		}
		certificate, ca, err := newCertificate(key)
		if err != nil {
			return err
		}
		s.ca, c.TLS = ca, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	}
	if s.cluster != nil {
		if c.Cluster, err = s.cluster.server(secret); err != nil {
			return err
		}
	}
	server, err := natsserver.Start(c)
	if err != nil {
		return withCure(err)
	}
	s.nats = server
	if s.missed = 0; s.cluster != nil {
		s.missed = alone // clients must not come before the other members
	}
	s.config.Logger.InfoContext(ctx, "runs the NATS server of this database",
		"server", s.address(), "holder", s.holder)
	return s.writePort()
}

// withCure adds the cure to the error of an address on which the server cannot listen.
func withCure(err error) error {
	var address *natsserver.AddressError
	if !errors.As(err, &address) {
		return err
	}
	flag, other := "--nats-listen", "name another address with --nats-listen"
	if address.IsPeers {
		flag, other = "--cluster-listen", "name another address for this one in the --peers of all processes"
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: end that process, or %s", err, other)
	}
	return fmt.Errorf("%w: name an address of this machine with %s, and a port that the user may open", err, flag)
}

// readAccounts returns the accounts of the server's users, and the cluster's secret. It creates missing ones.
func (s *Server) readAccounts(ctx context.Context, conn *pgx.Conn) (accounts, secret string, err error) {
	users, err := natsclient.Users(ctx, conn)
	if err != nil {
		return "", "", err
	}
	_, wanted := natsconfig.Own(users)
	if s.cluster != nil && users[clusterUser] == "" {
		wanted[clusterUser] = newSecret()
	}
	for name, password := range wanted {
		if err := natsclient.AddUser(ctx, conn, name, password); err != nil {
			return "", "", err
		}
	}
	if users, err = natsclient.Users(ctx, conn); err != nil { // another process may have added them first
		return "", "", err
	}
	accounts, _ = natsconfig.Own(users)
	return accounts, users[clusterUser], nil
}

// address returns the address for clients. The caller holds mu.
func (s *Server) address() string {
	port := s.addresses.advertisedPort
	if port == "" {
		_, port, _ = net.SplitHostPort(s.nats.Host())
	}
	return net.JoinHostPort(s.addresses.advertised, port)
}

// preferred returns the address of this process's own server, or "" while it does not run.
func (s *Server) preferred() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nats == nil {
		return ""
	}
	return s.address()
}

// Connect opens a connection as [natsclient.Connect] does. It prefers the server of this process, so that both pause
// and end together.
func (s *Server) Connect(user string, options ...nats.Option) (*nats.Conn, error) {
	return natsclient.ConnectNear(s.preferred, s.config.DB, user, options...)
}

// alone is the number of renewals without a majority at which a new server begins, so that no client uses it yet.
const alone = 3

// stillAlone is the number of such renewals after which a server logs why it is alone: the others have had time to
// start.
const stillAlone = alone + 3

// portFile is the name of the file with the last start's port.
const portFile = "port"

// port returns the port to listen on; 0: any.
func (s *Server) port() int {
	if s.addresses.port != "" {
		port, _ := net.LookupPort("tcp", s.addresses.port) // Validate has checked it
		return port
	}
	text, err := os.ReadFile(filepath.Join(s.config.Dir, portFile))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	last := net.JoinHostPort(s.addresses.host, strconv.Itoa(port))
	if err := reserve.FreeAt(last); errors.Is(err, syscall.EADDRINUSE) {
		s.config.Logger.Warn("another process listens on the address of the last start; the NATS server takes another "+
			"port: programs with a copy of its address need the new one: taskledger url nats", "server", last)
		return 0
	} else if err != nil {
		return 0
	}
	return port
}

func (s *Server) writePort() error {
	_, port, err := net.SplitHostPort(s.nats.Host())
	if err == nil {
		err = os.WriteFile(filepath.Join(s.config.Dir, portFile), []byte(port+"\n"), 0o600)
	}
	if err != nil {
		return fmt.Errorf("NATS server: write its port: %w", err)
	}
	return nil
}

func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nats == nil {
		return
	}
	if err := s.nats.Close(); err != nil {
		s.config.Logger.Warn("cannot close the NATS server", "error", err)
	}
	s.nats = nil
	s.config.Logger.Info("the NATS server of this database does not run here any more")
}

// CheckRoom returns an error if less than a megabyte is free on the server's disk.
func (s *Server) CheckRoom() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nats == nil {
		return errStopped
	}
	return s.nats.CheckRoom()
}

// Restart restarts the server, if it runs here.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nats == nil {
		return errStopped
	}
	return s.nats.Restart()
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
