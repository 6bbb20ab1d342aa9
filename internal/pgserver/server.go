// Package pgserver runs a PostgreSQL server of our own from the binaries that
// are installed on the machine: for the demo, for a first look without any
// set-up, and for tests, which can stop it, kill it and give it a standby.
//
// The server is a child of this process and ends with it, whatever ends it. It
// listens on 127.0.0.1 only and asks for a password, which was drawn when its
// data was made. A process running as root starts it as user postgres.
//
// A server's directory holds
//
//	data       the data directory (PGDATA)
//	password   the superuser's password
//	log        what the server wrote in its last run; log.old the run before
//	lock       locked by the process that started the server
//	alive      locked by the processes of the server
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/taskledger/taskledger/internal/reserve"
)

// superuser is the role of [Server.URL].
const superuser = "postgres"

// Config says where and how a server runs. The zero value is a temporary
// server on a free port.
type Config struct {
	// Dir holds the server's data and is made if it does not exist. Empty: a
	// temporary directory, which Close removes, or the end of this process.
	Dir string
	// Binaries is the directory of postgres and initdb. Empty: searched.
	Binaries string
	// Port on 127.0.0.1. 0: a free one, kept for as long as the Server is used.
	Port int
	// NoSync trades survival of the machine's crash for speed, for tests. What
	// was committed still survives every end of the processes.
	NoSync bool
	// Settings of PostgreSQL by name. They override our defaults, which are
	// max_connections 200 and timezone UTC.
	Settings map[string]string
}

// Server is a PostgreSQL server. Its methods are safe for concurrent use; those
// that start or end it run one after the other.
type Server struct {
	config   Config
	binaries string
	account  *account
	dir      string
	password string
	port     int
	lock     *reserve.Lock
	watchdog *watchdog

	mu      sync.Mutex
	process *process // the last one; nil before the first
	closed  bool
}

// Start makes the data if there is none, starts a server on it and returns when
// that accepts connections. The context bounds the start only. Errors:
// *[NoBinariesError]; one wrapping [reserve.ErrHeld] if another process runs a
// server in the directory; else one with the last lines of the server's log.
func Start(ctx context.Context, config Config) (*Server, error) {
	return open(ctx, config, initialize)
}

// open starts a server whose data, if there is none, is made by populate.
func open(ctx context.Context, config Config, populate func(context.Context, *Server) error) (_ *Server, err error) {
	if runtime.GOOS == "windows" {
		return nil, fmt.Errorf("an own PostgreSQL server on Windows: %w; name a running server with --database-url", errors.ErrUnsupported)
	}
	s := &Server{config: config}
	if s.binaries, err = findBinaries(config.Binaries); err != nil {
		return nil, err
	}
	if s.account, err = serverAccount(); err != nil {
		return nil, err
	}
	if err := s.occupy(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if _, err := os.Stat(s.path("data")); errors.Is(err, os.ErrNotExist) {
		if err := populate(ctx, s); err != nil {
			return nil, err
		}
	}
	password, err := os.ReadFile(s.path("password"))
	if err != nil {
		return nil, err
	}
	s.password = strings.TrimSpace(string(password))
	if err := s.firstLaunch(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// occupy makes the directory, takes it for this process and sets the watchdog.
func (s *Server) occupy() (err error) {
	if s.temporary() {
		above := os.TempDir()
		if s.config.NoSync {
			above = scratch()
		}
		if s.dir, err = os.MkdirTemp(above, "taskledger-postgres-"); err == nil {
			err = s.account.own(s.dir)
		}
	} else if s.dir, err = filepath.Abs(s.config.Dir); err == nil {
		err = s.account.makeDir(s.dir)
	}
	if err != nil {
		return err
	}
	if s.lock, err = reserve.File(s.path("lock")); err != nil {
		return fmt.Errorf("PostgreSQL directory is in use: %w", err)
	}
	if s.watchdog, err = startWatchdog(s.dir, s.deathSignal(), s.temporary()); err != nil {
		return errors.Join(err, s.lock.Release())
	}
	return nil
}

// firstLaunch launches on the configured port, or on a free one: another if
// somebody took it in the meantime.
func (s *Server) firstLaunch(ctx context.Context) (err error) {
	if s.port = s.config.Port; s.port != 0 {
		return s.launch(ctx)
	}
	for range 5 {
		if s.port, err = reserve.Port(); err != nil {
			return err
		}
		if err = s.launch(ctx); err == nil || reserve.Free(s.port) == nil {
			return err
		}
	}
	return err
}

// URL returns the address of a database, for the superuser, password included.
// It stays the same for as long as the directory and the port do.
func (s *Server) URL(database string) string {
	address := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: "127.0.0.1:" + strconv.Itoa(s.port), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return address.String()
}

// Stop ends the server in order: open transactions are rolled back, and the
// data is written out. It returns when the server has ended, or with the
// context's error while it is still ending. A stopped server stays stopped,
// without error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.end(ctx, syscall.SIGINT)
}

// Kill ends the server by SIGKILL, as a crash does. What was committed is there
// again after a Restart.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.end(context.Background(), syscall.SIGKILL)
}

// Restart starts the server again after a Stop, a Kill or an end of its own, on
// the same data and port; a running one it stops first. It returns when the
// server accepts connections. Errors are those of [Start].
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart of a closed PostgreSQL server")
	}
	if err := s.process.end(ctx, syscall.SIGINT); err != nil {
		return err
	}
	return s.launch(ctx)
}

// Done returns a channel that is closed when the present run of the server has
// ended, wanted or not.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.done
}

// closing bounds each step of Close.
const closing = 30 * time.Second

// Close ends the server, as Stop does or, after 30 s, as Kill does; removes a
// temporary directory, and gives a permanent one free for another process. More
// than one call is fine.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	err := s.process.end(ctx, s.deathSignal())
	if err != nil {
		err = s.process.end(context.Background(), syscall.SIGKILL)
	}
	if s.temporary() {
		err = errors.Join(err, s.clearMemory(), s.remove())
	}
	return errors.Join(err, s.watchdog.stop(), s.lock.Release())
}

// clearMemory removes what a killed server left in shared memory, of which the
// system has few segments. Only a successor knows how, so it lets one start.
func (s *Server) clearMemory() error {
	if _, err := os.Stat(s.path("data", "postmaster.pid")); err != nil || s.process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.process.end(ctx, s.deathSignal())
}

// remove removes the directory when nobody writes into it any more.
func (s *Server) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	alive, err := s.awaitGone(ctx)
	if err != nil {
		return err
	}
	return errors.Join(alive.Release(), os.RemoveAll(s.dir))
}

// deathSignal is what the server gets when this process dies: an order to write
// its data out, unless nobody will read it.
func (s *Server) deathSignal() syscall.Signal {
	if s.temporary() {
		return syscall.SIGQUIT
	}
	return syscall.SIGINT
}

func (s *Server) temporary() bool { return s.config.Dir == "" }

func (s *Server) path(name ...string) string {
	return filepath.Join(append([]string{s.dir}, name...)...)
}
