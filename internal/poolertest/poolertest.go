// Package poolertest starts PgBouncer for tests.
package poolertest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/reserve"
)

// patience is the timeout of the start, which normally takes milliseconds.
const patience = time.Minute

// Start starts PgBouncer before a database, and returns the address of the database behind it. mode is "transaction" or
// "session"; size is the maximum number of connections to the server. It ends with the test, which is skipped if
// PgBouncer is not installed.
func Start(t testing.TB, address, mode string, size int) string {
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
	to, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("[databases]\n%s = host=%s port=%d user=%s password='%s'\n[pgbouncer]\n"+
		"listen_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = %s\n"+
		"default_pool_size = %d\nignore_startup_parameters = extra_float_digits\n",
		to.Database, to.Host, to.Port, to.User, to.Password, port, mode, size)
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
	behind := url.URL{Scheme: "postgres", User: url.UserPassword(to.User, to.Password),
		Host: fmt.Sprintf("127.0.0.1:%d", port), Path: to.Database, RawQuery: "sslmode=disable"}
	awaitAnswer(t, behind.String())
	return behind.String()
}

func awaitAnswer(t testing.TB, address string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		conn, err := pgx.Connect(t.Context(), address)
		if err == nil {
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not answer: %v", err)
		}
	}
}
