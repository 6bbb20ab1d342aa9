// Package pgserver runs a PostgreSQL server from the binaries that are installed on the machine. It is
// for the commands serve and demo without a database, and for tests, which can stop it, kill it and
// start a standby of it.
//
// The server is a child of this process and ends with it, even if this process is killed. It listens on 127.0.0.1 only
// and requires a random password. If this process runs as root, the server runs as user postgres, which PostgreSQL's
// packages create, or else as the machine's unprivileged user.
//
// A server's directory contains these files. Only data belongs to the server's user: an SQL superuser can run programs
// as that user, and could otherwise use links to replace files that root writes.
//
//	data       the data directory (PGDATA)
//	password   the superuser's password, which initdb reads
//	log        the log of the last run; log.old: the run before
//	lock       locked by the process that started the server
//	alive      locked by the processes of the server
package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/taskledger/taskledger/internal/reserve"
)

// superuser is the role of [Server.URL].
const superuser = "postgres"

// Config configures a server. The zero value is a temporary server on a free port.
type Config struct {
	// Dir is the directory of the server's files. Start makes it if it does not exist.
	// Default: a temporary directory, which Close or the end of this process removes.
	Dir string
	// Binaries is the directory of postgres and initdb. Default: search.
	Binaries string
	// Fetch returns the directory of binaries where none are installed: package pgfetch. Default: Start fails.
	Fetch func(context.Context) (dir string, err error)
	// Port on 127.0.0.1. Default: a free port, which stays the same for the life of the Server.
	Port int
	// NoSync turns off fsync, for tests. Committed data survives every end of the processes, but not
	// a crash of the machine.
	NoSync bool
	// Settings of PostgreSQL by name. They override the defaults of this package, which are
	// max_connections 200 and timezone UTC.
	Settings map[string]string
	// Clock of the server's processes, for tests. Default: the machine's.
	Clock *Clock
}

// Server is a PostgreSQL server. Its methods are safe for concurrent use. Methods that start or end the server run one
// after the other.
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
	process *process // the last run; nil before the first; guarded by mu
	closed  bool     // guarded by mu
}

// RefusePlatform returns an error, with the cure, on platforms where no server can be started.
func RefusePlatform() error {
	if runtime.GOOS != "windows" {
		return nil
	}
	return fmt.Errorf("start PostgreSQL on Windows: %w; use WSL, or set --database-url to a running server",
		errors.ErrUnsupported)
}

// Start starts a server and returns when it accepts connections. It creates the data if the directory contains none.
// The context bounds the start only. It returns a *[NoBinariesError] if PostgreSQL is not installed, and an error that
// wraps [reserve.ErrHeld] if another process runs a server in the directory. Other errors contain the last lines of the
// server's log.
func Start(ctx context.Context, config Config) (*Server, error) {
	return open(ctx, config, initialize)
}

// open starts a server. If there is no data, it calls populate to make it.
func open(ctx context.Context, config Config, populate func(context.Context, *Server) error) (_ *Server, err error) {
	if err := RefusePlatform(); err != nil {
		return nil, err
	}
	s := &Server{config: config}
	if s.binaries, err = config.findBinaries(ctx); err != nil {
		return nil, err
	}
	if s.account, err = serverAccount(config.data()); err != nil {
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
	if err := s.readPassword(); err != nil {
		return nil, err
	}
	if err := s.firstLaunch(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// findBinaries returns the directory of the server's binaries. It fetches them if they were not named and are not
// installed.
func (c Config) findBinaries(ctx context.Context) (string, error) {
	dir, err := findBinaries(c.Binaries, c.data())
	var missing *NoBinariesError
	if !errors.As(err, &missing) || c.Fetch == nil || cmp.Or(c.Binaries, os.Getenv(Variable)) != "" {
		return dir, err
	}
	if dir, err = c.Fetch(ctx); err != nil {
		missing.Fetch = err
		return "", missing
	}
	return findBinaries(dir, "")
}

// data returns the data directory of a server that stays; "" of a temporary one.
func (c Config) data() string {
	if c.Dir == "" {
		return ""
	}
	return filepath.Join(c.Dir, "data")
}

// occupy makes the directory, locks it for this process and starts the watchdog.
func (s *Server) occupy() (err error) {
	if s.temporary() {
		parent := os.TempDir()
		if s.config.NoSync {
			parent = scratch()
		}
		if s.dir, err = os.MkdirTemp(parent, "taskledger-postgres-"); err == nil {
			err = os.Chmod(s.dir, s.account.dirMode())
		}
	} else if s.dir, err = filepath.Abs(s.config.Dir); err == nil {
		err = s.account.makeDir(s.dir)
	}
	if err == nil {
		err = s.account.refuseWritable(s.dir)
	}
	if err != nil {
		return err
	}
	if s.lock, err = reserve.File(s.path("lock")); err != nil {
		return fmt.Errorf("cannot lock the directory of PostgreSQL: %w", err)
	}
	if s.watchdog, err = startWatchdog(s.dir, s.deathSignal(), s.temporary()); err != nil {
		return errors.Join(err, s.lock.Release())
	}
	return nil
}

// firstLaunch launches on the configured port, or on a free one. It tries another free port if the port
// is taken meanwhile.
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

// URL returns the address of a database, with user and password of the superuser. It changes only with
// the directory or the port.
func (s *Server) URL(database string) string {
	address := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: "127.0.0.1:" + strconv.Itoa(s.port), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return address.String()
}

// Stop shuts the server down (fast shutdown): it rolls open transactions back and writes the data out.
// Stop returns when the server has ended. It returns the context's error if that comes first; the
// shutdown continues then. Stopping a stopped server is not an error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.end(ctx, syscall.SIGINT)
}

// Kill ends the server by SIGKILL, like a crash. Committed data is there after a Restart.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.end(context.Background(), syscall.SIGKILL)
}

// Restart starts the server again, on the same data and port. It stops a running server first. It returns when the
// server accepts connections, with the errors of [Start].
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart PostgreSQL: the server is closed")
	}
	if err := s.process.end(ctx, syscall.SIGINT); err != nil {
		return err
	}
	return s.launch(ctx)
}

// Done returns a channel that is closed when the current run of the server has ended, by Stop or by
// itself.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.done
}

// closeTimeout bounds each step of Close.
const closeTimeout = 30 * time.Second

// Close ends the server like Stop, or after 30 s like Kill. It removes a temporary directory, and
// releases the lock of a permanent one. Later calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
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

// clearMemory removes the shared memory of a killed server, because the system has only a few segments. Only a server
// on the same data can remove it, so clearMemory starts and stops such a server.
func (s *Server) clearMemory() error {
	if _, err := os.Stat(s.path("data", "postmaster.pid")); err != nil || s.process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.process.end(ctx, s.deathSignal())
}

// remove removes the directory after the server's last process has ended.
func (s *Server) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	alive, err := s.awaitGone(ctx)
	if err != nil {
		return err
	}
	return errors.Join(alive.Release(), os.RemoveAll(s.dir))
}

// deathSignal returns the signal that the server gets when this process ends. A temporary server does
// not write its data out.
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
