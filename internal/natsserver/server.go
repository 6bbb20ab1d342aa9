// Package natsserver runs a NATS server with JetStream inside this process: for
// the demo, for a first look without any set-up, and for tests, which can stop
// it, start it again and take its store away.
//
// It listens on 127.0.0.1 only and asks for a token, which is in its URL. Two
// servers on one store would both start and corrupt it without a word, so a
// lock on the directory refuses the second one.
package natsserver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/taskledger/taskledger/internal/reserve"
)

// Config says where and how a server runs. Only Dir must be given.
type Config struct {
	// Dir holds the store and is made if it does not exist.
	Dir string
	// Port on 127.0.0.1. 0: a free one, kept for as long as the Server is used.
	Port int
	// Token that clients must know. Empty: drawn at random.
	Token string
	// SyncInterval is how long an acknowledged message may exist in the
	// operating system's memory only, where the end of this process does not
	// harm it but the machine's crash does. 0: one second.
	SyncInterval time.Duration
	// SyncAlways has every message synced before it is acknowledged.
	SyncAlways bool
	// MaxPayload is the largest message in bytes. 0: 1 MiB.
	MaxPayload int32
	// MaxStore is how much all streams may hold, in bytes. 0: three quarters of
	// what is free on the disk.
	MaxStore int64
	// Log gets what the server says. nil: nobody does.
	Log *slog.Logger
}

// Server is a NATS server. Its methods are safe for concurrent use; those that
// start or end it run one after the other.
type Server struct {
	config Config
	lock   *reserve.Lock

	mu     sync.Mutex
	server *server.Server // nil while stopped
	closed bool
}

// Start makes the directory if there is none and returns when a server on it
// accepts connections and its streams are recovered. The error wraps
// [reserve.ErrHeld] if the directory has a server already, in this process or
// in another.
func Start(config Config) (_ *Server, err error) {
	if config.Dir == "" {
		return nil, errors.New("NATS server: Config.Dir is not given")
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	if config.Token == "" {
		config.Token = rand.Text()
	}
	if config.SyncInterval == 0 {
		config.SyncInterval = time.Second
	}
	s := &Server{config: config}
	if s.lock, err = reserve.File(filepath.Join(config.Dir, "lock")); err != nil {
		return nil, fmt.Errorf("NATS server: the directory is in use: %w", err)
	}
	if err := s.firstLaunch(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// firstLaunch launches on the configured port, or on a free one: another if
// somebody took it in the meantime.
func (s *Server) firstLaunch() (err error) {
	if s.config.Port != 0 {
		return s.launch()
	}
	for range 5 {
		if s.config.Port, err = reserve.Port(); err != nil {
			return err
		}
		if err = s.launch(); err == nil || reserve.Free(s.config.Port) == nil {
			return err
		}
	}
	return err
}

// ready bounds the wait for the listener; the streams are recovered before.
const ready = 10 * time.Second

// launch starts a server and returns when it accepts connections.
func (s *Server) launch() error {
	instance, err := server.NewServer(s.options())
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	log := newLogger(s.config.Log)
	instance.SetLoggerV2(log, false, false, false)
	instance.Start()
	// The server calls its logger where its program would exit.
	err = log.fatal()
	if err == nil && !instance.ReadyForConnections(ready) {
		err = fmt.Errorf("not ready after %v", ready)
	}
	if err != nil {
		instance.Shutdown()
		instance.WaitForShutdown()
		return fmt.Errorf("NATS server on port %d: %w", s.config.Port, err)
	}
	s.server = instance
	return nil
}

func (s *Server) options() *server.Options {
	return &server.Options{
		ServerName:             "taskledger",
		Host:                   "127.0.0.1",
		Port:                   s.config.Port,
		Authorization:          s.config.Token,
		NoSigs:                 true, // the signals are for the program around us
		MaxPayload:             s.config.MaxPayload,
		JetStream:              true,
		DisableJetStreamBanner: true,
		StoreDir:               s.store(),
		JetStreamMaxStore:      s.config.MaxStore,
		SyncInterval:           s.config.SyncInterval,
		SyncAlways:             s.config.SyncAlways,
	}
}

func (s *Server) store() string { return filepath.Join(s.config.Dir, "store") }

// URL returns the address of the server, token included. It stays the same over
// restarts.
func (s *Server) URL() string {
	address := url.URL{
		Scheme: "nats", User: url.User(s.config.Token),
		Host: "127.0.0.1:" + strconv.Itoa(s.config.Port),
	}
	return address.String()
}

// Stop ends the server: clients are disconnected and the streams written out.
// A stopped server stays stopped.
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

// Restart starts the server again on the same store and port; a running one it
// stops first. It returns when the server accepts connections and its streams
// are recovered.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("NATS server: restart of a closed server")
	}
	s.stop()
	return s.launch()
}

// Wipe removes all streams and consumers, as the loss of the disk does. It
// refuses while the server runs.
func (s *Server) Wipe() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil || s.closed {
		return errors.New("NATS server: only a stopped server's store can be wiped")
	}
	return os.RemoveAll(s.store())
}

// Close stops the server and gives its directory free. More than one call is
// fine.
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
