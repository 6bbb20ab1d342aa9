// Package natsserver runs a NATS server with JetStream in this process. It is for the commands serve
// and demo without a NATS server, and for tests, which can stop it, restart it and remove its store.
//
// The server listens on 127.0.0.1, or where its configuration names, and requires a token, which is in its URL, or the
// users of its configuration. Two servers on one store would both start and silently corrupt it, so the server locks
// its directory.
package natsserver

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/taskledger/taskledger/internal/reserve"
)

// Config configures a server.
type Config struct {
	// Dir is the directory of the store. Start makes it if it does not exist. Required.
	Dir string
	// Host is where the server listens. Default: 127.0.0.1.
	Host string
	// Port on Host. Default: a port that is free on 127.0.0.1, which stays the same for the life of the Server.
	Port int
	// TLS begins each connection of a client. Default: disabled.
	TLS *tls.Config
	// Token that clients must send. Default: a random one. Ignored with Accounts.
	Token string
	// Accounts is a configuration of accounts, users and TLS, as nats-server reads it. Default: one user
	// with all rights, who sends Token.
	Accounts string
	// Cluster makes the server a member of a cluster. Default: it is alone.
	Cluster *Cluster
	// SyncInterval is the interval of syncs to disk. A crash of the machine loses the messages since
	// the last one, acknowledged or not; the end of this process loses no message. Default: 1 s.
	SyncInterval time.Duration
	// SyncAlways syncs every message before it is acknowledged. Default: disabled.
	SyncAlways bool
	// MaxPayload is the maximum size of a message in bytes. Default: 1 MiB.
	MaxPayload int32
	// MaxStore is the maximum total size of all streams in bytes. Default: unlimited. nats-server's own default is a
	// part of the space that is free at its start; it would refuse a stream that may grow larger, even after space was
	// freed.
	MaxStore int64
	// Log receives the server's log. Default: disabled.
	Log *slog.Logger
}

// Cluster is a member's view of its cluster.
type Cluster struct {
	Name   string      // the same for all members, and for no other cluster
	Self   string      // name of this member
	Host   string      // where it listens for the others; "": on every address
	Port   int         // the same
	Peers  []string    // where all members listen, HOST:PORT, this one among them
	Secure *tls.Config // for both ends of a connection between members
}

// Server is a NATS server. Its methods are safe for concurrent use. Methods that start or end the server run one after
// the other.
type Server struct {
	config Config
	lock   *reserve.Lock

	mu     sync.Mutex
	server *server.Server // nil while stopped; guarded by mu
	closed bool           // guarded by mu
}

// Start starts a server. It returns when the server accepts connections and has recovered its streams. The error wraps
// [reserve.ErrHeld] if another server uses the directory, in this process or in another.
func Start(config Config) (_ *Server, err error) {
	if config.Dir == "" {
		return nil, errors.New("NATS server: Dir is required")
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	if config.Token == "" {
		config.Token = rand.Text()
	}
	if config.Host == "" {
		config.Host = "127.0.0.1"
	}
	if config.SyncInterval == 0 {
		config.SyncInterval = time.Second
	}
	if config.MaxStore == 0 {
		config.MaxStore = 1 << 62
	}
	s := &Server{config: config}
	if s.lock, err = reserve.File(filepath.Join(config.Dir, "lock")); err != nil {
		return nil, fmt.Errorf("NATS server: cannot lock the directory: %w", err)
	}
	if err := s.removeOtherStores(); err != nil {
		return nil, errors.Join(fmt.Errorf("NATS server: remove streams of another configuration: %w", err), s.Close())
	}
	if err := s.firstLaunch(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// firstLaunch launches on the configured port, or on a free one. It tries another free port if the port
// is taken meanwhile.
func (s *Server) firstLaunch() (err error) {
	if s.config.Port != 0 {
		return s.launch()
	}
	for range 5 {
		if s.config.Port, err = reserve.Port(); err != nil {
			return err
		}
		if err = s.launch(); err == nil || reserve.FreeAt(s.Host()) == nil {
			return err
		}
	}
	return err
}

// tlsTimeout bounds the handshake of a client.
const tlsTimeout = 5 * time.Second

// peerPing is how often a member pings another member.
const peerPing = 2 * time.Second

// readyTimeout bounds the wait for the listener. The server recovers its streams before that.
const readyTimeout = 10 * time.Second

// AddressError is returned if the server cannot listen on an address.
type AddressError struct {
	Address string
	IsPeers bool // the address is for the other members of the cluster
	Err     error
}

func (e *AddressError) Error() string {
	if errors.Is(e.Err, syscall.EADDRINUSE) {
		return fmt.Sprintf("NATS server: another process listens on %s: %s", e.Address, syscall.EADDRINUSE)
	}
	return fmt.Sprintf("NATS server: %s", e.Err)
}

func (e *AddressError) Unwrap() error { return e.Err }

// checkAddresses returns an [*AddressError] if the server cannot listen. nats-server reports no error for the address
// of its peers: it is not ready in time, without a reason.
func (s *Server) checkAddresses() error {
	if err := reserve.FreeAt(s.Host()); err != nil {
		return &AddressError{Address: s.Host(), Err: err}
	}
	if c := s.config.Cluster; c != nil {
		peers := net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
		if err := reserve.FreeAt(peers); err != nil {
			return &AddressError{Address: peers, IsPeers: true, Err: err}
		}
	}
	return nil
}

// launch starts a server and returns when it accepts connections.
func (s *Server) launch() error {
	if err := s.checkAddresses(); err != nil {
		return err
	}
	options, err := s.options()
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	instance, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	log := newLogger(s.config.Log)
	instance.SetLoggerV2(log, false, false, false)
	instance.Start()
	err = log.fatal() // of Start, which returns no error
	if err == nil && !instance.ReadyForConnections(readyTimeout) {
		err = fmt.Errorf("not ready after %v", readyTimeout)
	}
	if err != nil {
		instance.Shutdown()
		instance.WaitForShutdown()
		return fmt.Errorf("NATS server on port %d: %w", s.config.Port, err)
	}
	s.server = instance
	return nil
}

func (s *Server) options() (*server.Options, error) {
	options := &server.Options{
		ServerName:             "taskledger",
		Host:                   s.config.Host,
		Port:                   s.config.Port,
		NoSigs:                 true, // this program handles the signals
		MaxPayload:             s.config.MaxPayload,
		JetStream:              true,
		DisableJetStreamBanner: true,
		StoreDir:               s.store(),
		JetStreamMaxStore:      s.config.MaxStore,
		SyncInterval:           s.config.SyncInterval,
		SyncAlways:             s.config.SyncAlways,
	}
	if s.config.TLS != nil {
		options.TLS, options.TLSConfig = true, s.config.TLS
		options.TLSHandshakeFirst, options.TLSTimeout = true, tlsTimeout.Seconds()
	}
	if c := s.config.Cluster; c != nil {
		options.ServerName = c.Self
		options.Cluster = server.ClusterOpts{
			Name: c.Name, Host: c.Host, Port: c.Port, Advertise: c.Self, NoAdvertise: true,
			TLSConfig: c.Secure, TLSTimeout: tlsTimeout.Seconds(),
			PingInterval: peerPing, MaxPingsOut: 3,
		}
		for _, peer := range c.Peers {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: peer})
		}
	}
	if s.config.Accounts == "" {
		options.Authorization = s.config.Token
		return options, nil
	}
	return options, options.ProcessConfigString(s.config.Accounts)
}

// store returns the directory of the streams, a separate one for each cluster: a member cannot use the streams of a
// single server or of another cluster.
func (s *Server) store() string {
	if s.config.Cluster == nil {
		return filepath.Join(s.config.Dir, "store")
	}
	return filepath.Join(s.config.Dir, "store-"+s.config.Cluster.Name)
}

// removeOtherStores removes the streams of a single server or of another cluster. They are outdated: the ledger has
// continued without them.
func (s *Server) removeOtherStores() error {
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := filepath.Join(s.config.Dir, e.Name()); strings.HasPrefix(e.Name(), "store") && name != s.store() {
			err = errors.Join(err, os.RemoveAll(name))
		}
	}
	return err
}

// URL returns the address of the server, with its token. A restart does not change it.
func (s *Server) URL() string {
	address := url.URL{Scheme: "nats", User: url.User(s.config.Token), Host: s.Host()}
	return address.String()
}

// Host returns the host and port of the server. A restart does not change them.
func (s *Server) Host() string { return net.JoinHostPort(s.config.Host, strconv.Itoa(s.config.Port)) }

// Stop stops the server: it disconnects the clients and writes the streams out. Stopping a stopped
// server does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

func (s *Server) stop() {
	if s.server == nil {
		return
	}
	s.server.Shutdown()
	s.server.WaitForShutdown()
	s.server = nil
}

// Restart starts the server again, on the same store and port. It stops a running server first. It
// returns when the server accepts connections and has recovered its streams.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart NATS server: the server is closed")
	}
	s.stop()
	err := s.launch()
	for began := time.Now(); isInUse(err) && time.Since(began) < inheritance; err = s.launch() {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// inheritance bounds how long child processes that were just started may keep the listener of a stopped server open:
// the kernel copies it when a child begins, and closes the copy when the child executes its program.
const inheritance = 2 * time.Second

// isInUse reports whether a launch has failed because a process listens on the port. nats-server's error is a text.
func isInUse(err error) bool {
	return err != nil && strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
}

// HasMajority reports whether the server is connected to most members of its cluster, itself among them. Without them
// it stores nothing. It is true for a server that is alone.
func (s *Server) HasMajority() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config.Cluster == nil {
		return true
	}
	return s.server != nil && s.server.NumRemotes() >= len(s.config.Cluster.Peers)/2
}

// Disconnect disconnects all clients. They may connect again.
func (s *Server) Disconnect() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	clients, err := s.server.Connz(&server.ConnzOptions{Limit: 1 << 20})
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	for _, c := range clients.Conns {
		_ = s.server.DisconnectClientByID(c.Cid) // its error: the client is gone
	}
	return nil
}

// CheckRoom returns an error if less than a megabyte is free on the store's disk. It writes a file and removes it.
func (s *Server) CheckRoom() (err error) {
	f, err := os.CreateTemp(s.config.Dir, "room-")
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(make([]byte, 1<<20))
	return errors.Join(err, f.Sync(), f.Close())
}

// Wipe removes all streams and consumers, like the loss of the disk. It returns an error unless the
// server is stopped.
func (s *Server) Wipe() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil || s.closed {
		return errors.New("wipe NATS server: the server must be stopped and not closed")
	}
	return os.RemoveAll(s.store())
}

// Close stops the server and releases the lock of its directory. Later calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.stop()
	return s.lock.Release()
}
