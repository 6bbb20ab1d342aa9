package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/reserve"
)

// retryEvery is how often we look again for what a server does not tell: that
// it accepts connections, or that its last process is gone.
const retryEvery = 10 * time.Millisecond

// process is one run of the postmaster.
type process struct {
	*os.Process
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read it after done
}

// ended reports whether there is nothing to stop.
func (p *process) ended() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end signals the process and waits until it has ended.
func (p *process) end(ctx context.Context, signal os.Signal) error {
	if p.ended() {
		return nil
	}
	if err := p.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// launch starts the postmaster and returns when it accepts connections.
func (s *Server) launch(ctx context.Context) error {
	alive, err := s.awaitGone(ctx)
	if err != nil {
		return err
	}
	defer alive.Release() // from here on it is the processes' of the server
	// With the lock in hand no process of this cluster lives: a pid file is a
	// crashed server's, and by now its number may be somebody else's.
	if err := os.Remove(s.path("data", "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(s.path("log"), s.path("log.old")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(s.path("log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	cmd := s.command(context.WithoutCancel(ctx), "postgres", s.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{alive.File}
	dieWithParent(cmd.SysProcAttr, s.deathSignal())
	p, err := s.watchdog.start(cmd)
	if err != nil {
		return err
	}
	s.process = p
	return s.awaitReady(ctx)
}

// awaitGone waits for the end of the last process of an earlier run, which may
// outlive a killed postmaster or a killed parent for a moment, and returns the
// lock that the processes of the next run will hold.
func (s *Server) awaitGone(ctx context.Context) (*reserve.Lock, error) {
	for {
		alive, err := reserve.File(s.path("alive"))
		if !errors.Is(err, reserve.ErrHeld) {
			return alive, err
		}
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return nil, fmt.Errorf("processes of an earlier server still run: %w: %w", context.Cause(ctx), err)
		}
	}
}

// awaitReady returns when the server accepts connections. If it does not come
// to that, it is ended and the error has the last lines of its log.
func (s *Server) awaitReady(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			_ = s.process.end(context.WithoutCancel(ctx), syscall.SIGQUIT)
			err = fmt.Errorf("start PostgreSQL on port %d: %w\n%s", s.port, err, tail(s.path("log")))
		}
	}()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code != cannotConnectNow {
			return err
		}
		select {
		case <-s.process.done:
			return s.process.err
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(retryEvery):
		}
	}
}

// cannotConnectNow is the SQLSTATE of a server that is still starting.
const cannotConnectNow = "57P03"

// command prepares one of the binaries to run as the server's account, in a
// session of its own: a Ctrl-C in the terminal reaches us and not the server.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.binaries, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = attributes(s.account)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "PG") })
	cmd.Env = append(cmd.Env, "LC_ALL=C", "HOME="+s.dir, "PGPASSWORD="+s.password, "PGSSLMODE=disable")
	return cmd
}

// run runs one of the binaries to its end.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	out, err := s.command(ctx, name, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if s.account != nil {
		return fmt.Errorf("%s as user %s, who must be able to enter %s: %w\n%s", name, s.account.name, s.dir, err, out)
	}
	return fmt.Errorf("%s: %w\n%s", name, err, out)
}

// tail returns the last lines of a log.
func tail(name string) string {
	const lines = 20
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
