package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/broker"
	"github.com/taskledger/taskledger/internal/reserve"
)

// Behind a pooler in transaction mode the server is refused: its lock would be that of another transaction's session.
func TestPoolerIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s, err := broker.New(broker.Config{
		DB: d.behindPgBouncer(), Dir: t.TempDir(), TTL: 3 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Run(ctx); !errors.Is(err, broker.ErrPooler) {
		t.Errorf("%v, want %v", err, broker.ErrPooler)
	}
	d.run(broker.Config{}) // on a direct connection nothing is in the way
	d.found("worker", "worker")
}

// behindPgBouncer returns a pool whose connections go through PgBouncer in transaction mode.
func (d *database) behindPgBouncer() *pgxpool.Pool {
	t := d.t
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("PgBouncer is not installed")
	}
	dir, err := os.MkdirTemp("", "pgbouncer") // not t.TempDir, which user postgres cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // PgBouncer refuses to run as root
		t.Fatal(err)
	}
	port, err := reserve.Port()
	if err != nil {
		t.Fatal(err)
	}
	config := d.db.Config()
	to := config.ConnConfig
	text := fmt.Sprintf("[databases]\n%s = host=%s port=%d user=%s password='%s'\n[pgbouncer]\n"+
		"listen_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n"+
		"ignore_startup_parameters = extra_float_digits\n", to.Database, to.Host, to.Port, to.User, to.Password, port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	args := []string{file}
	if os.Geteuid() == 0 {
		args = []string{"-u", "postgres", file}
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	config.ConnConfig.Host, config.ConnConfig.Port = "127.0.0.1", uint16(port)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnConfig.Fallbacks, config.ConnConfig.TLSConfig = nil, nil
	config.ConnConfig.DialFunc = (&net.Dialer{}).DialContext
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	d.await("PgBouncer", func() error { return pool.Ping(t.Context()) })
	return pool
}
