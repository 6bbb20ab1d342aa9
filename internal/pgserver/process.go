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

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/reserve"
)

// retryEvery is the interval of polls: whether a server accepts connections, and whether its last process has ended.
const retryEvery = 10 * time.Millisecond

// process is one run of the postmaster.
type process struct {
	*os.Process
	done chan struct{} // closed when the process has ended
	err  error         // of the process; valid after done is closed
}

// hasEnded reports whether there is no process to stop.
func (p *process) hasEnded() bool {
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
	if p.hasEnded() {
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

// launch starts the postmaster. It returns when the server accepts connections.
func (s *Server) launch(ctx context.Context) error {
	alive, err := s.awaitGone(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = alive.Release() }() // the server's processes keep the lock
	// While this process holds the lock, no process of this cluster is alive. A pid file then remains from a crashed
	// server, and its number may belong to another process by now.
	if err := os.Remove(s.path("data", "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(s.path("log"), s.path("log.old")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := create(s.path("log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server writes through its own copy

	cmd := s.command(context.WithoutCancel(ctx), "postgres", s.arguments()...)
	cmd.Env = append(cmd.Env, s.config.Clock.environment()...)
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

// awaitGone waits until the last process of an earlier run has ended. It may outlive a killed postmaster or a killed
// parent. awaitGone returns the lock that the processes of the next run hold.
func (s *Server) awaitGone(ctx context.Context) (*reserve.Lock, error) {
	for {
		alive, err := reserve.File(s.path("alive"))
		if !errors.Is(err, reserve.ErrHeld) {
			return alive, err
		}
		if cause := loop.Sleep(ctx, retryEvery); cause != nil {
			return nil, fmt.Errorf("processes of an earlier server are still running: %w: %w", cause, err)
		}
	}
}

// awaitReady returns when the server accepts connections. If that fails, it ends the server; the error contains the
// last lines of the server's log.
func (s *Server) awaitReady(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			_ = s.process.end(context.WithoutCancel(ctx), syscall.SIGQUIT)
			err = fmt.Errorf("start PostgreSQL on port %d: %w\n%s", s.port, err, lastLines(s.path("log")))
		}
	}()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		if code := pgerr.Code(err); code != "" && code != pgerr.CannotConnectNow { // which a start returns
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

// command returns a command that runs a binary as the server's account, in a new session. Ctrl-C in the terminal then
// reaches this process and not the server.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.binaries, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = attributes(s.account)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "PG") })
	cmd.Env = append(cmd.Env, "LC_ALL=C", "HOME="+s.dir, "PGPASSWORD="+s.password, "PGSSLMODE=disable")
	return cmd
}

// run runs one of the binaries and waits for its end.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	out, err := s.command(ctx, name, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if s.account != nil {
		return fmt.Errorf("%s as user %s, which must be able to enter %s: %w\n%s", name, s.account.name, s.dir, err,
			out)
	}
	return fmt.Errorf("%s: %w\n%s", name, err, out)
}

// lastLines returns the last lines of a log.
func lastLines(name string) string {
	const count = 20
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-count):], "\n")
}
