package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/embedded"
	"github.com/taskledger/taskledger/internal/natsconfig"
	"github.com/taskledger/taskledger/internal/reserve"
)

// dataDir returns a directory that the server's user can enter, unlike one of t.TempDir.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "taskledger-embedded-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "data")
}

// start starts a server and closes it at the end of the test.
func start(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func TestServerIsAnnouncedAndKeepsItsData(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	if _, err := embedded.Attach(dir); !errors.Is(err, embedded.ErrNotRunning) {
		t.Fatalf("before: got %v, want ErrNotRunning", err)
	}
	first := start(t, dir)
	found, err := embedded.Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	if found.PID != os.Getpid() || found.DatabaseURL != first.DatabaseURL || found.NATSURLs != nil {
		t.Errorf("announced %+v", found)
	}
	if info, err := os.Stat(filepath.Join(dir, "server.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("server.json: %v, %v", info.Mode(), err)
	}
	if fsync := query(t, found.DatabaseURL, "create table kept (); show fsync"); fsync != "on" {
		t.Errorf("fsync is %s", fsync)
	}

	// A second start fails, and does not remove the announcement of the running servers.
	if _, err := embedded.Start(t.Context(), embedded.Config{Dir: dir}); !errors.Is(err, reserve.ErrHeld) {
		t.Errorf("a second start: got %v, want ErrHeld", err)
	}
	if _, err := embedded.Attach(dir); err != nil {
		t.Errorf("after a second start: %v", err)
	}

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Attach(dir); !errors.Is(err, embedded.ErrNotRunning) {
		t.Errorf("after the end: got %v, want ErrNotRunning", err)
	}
	second := start(t, dir)
	// Another process of the machine may have taken the port, but not three times in a row.
	for again := 0; second.DatabaseURL != first.DatabaseURL; again++ {
		if again == 3 {
			t.Fatalf("the address was %s, and is %s", first.DatabaseURL, second.DatabaseURL)
		}
		first = second
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second = start(t, dir)
	}
	if kept := query(t, second.DatabaseURL, "select to_regclass('kept')::text"); kept != "kept" {
		t.Errorf("the table is gone: %q", kept)
	}
}

// A server whose port is taken by another process uses a free one.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	first := start(t, dir)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(first.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", address.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	second := start(t, dir)
	if second.DatabaseURL == first.DatabaseURL {
		t.Errorf("PostgreSQL is at %s, which is taken", address.Host)
	}
	if first.LastPort != 0 || strconv.Itoa(second.LastPort) != address.Port() {
		t.Errorf("taken ports %d and %d, want none and %s", first.LastPort, second.LastPort, address.Port())
	}
}

func query(t *testing.T, address, sql string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	results, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return string(results[len(results)-1].Rows[0][0])
}

func TestAttachToRunningServers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	urls := map[string]string{natsconfig.Worker: "nats://b", natsconfig.Operator: "nats://c"}
	withdraw, err := embedded.Announce(dir, embedded.Announcement{DatabaseURL: "postgres://a", NATSURLs: urls})
	if err != nil {
		t.Fatal(err)
	}
	have, err := embedded.Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := embedded.Announcement{
		PID: os.Getpid(), DatabaseURL: "postgres://a", NATSURL: "nats://b", NATSURLs: urls,
		StartedAt: have.StartedAt,
	}
	if diff := difference.Of(want, have); diff != "" || have.StartedAt.IsZero() {
		t.Errorf("-want +have:\n%s", diff)
	}

	// The file of a process that has ended does not count. Withdraw does not remove another process's.
	process := exec.Command("true")
	if err := process.Run(); err != nil {
		t.Fatal(err)
	}
	have.PID = process.Process.Pid
	write(t, dir, have)
	if _, err := embedded.Attach(dir); !errors.Is(err, embedded.ErrNotRunning) {
		t.Errorf("after the end of the process: got %v, want ErrNotRunning", err)
	}
	zombie := exec.Command("true") // once it has ended, since it is not waited for
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zombie.Wait() }()
	for runtime.GOOS == "linux" && !reserve.IsZombie(zombie.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	have.PID = zombie.Process.Pid
	write(t, dir, have)
	if _, err := embedded.Attach(dir); runtime.GOOS == "linux" && !errors.Is(err, embedded.ErrNotRunning) {
		t.Errorf("of a zombie: got %v, want ErrNotRunning", err)
	}
	have.PID = os.Getppid()
	write(t, dir, have)
	if err := withdraw(); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Attach(dir); err != nil {
		t.Errorf("another's announcement was withdrawn: %v", err)
	}

	have.PID = os.Getpid()
	write(t, dir, have)
	for range 2 {
		if err := withdraw(); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func write(t *testing.T, dir string, a embedded.Announcement) {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// For root, the error has the directory that PostgreSQL's user cannot enter.
func TestDirectoryThatTheServersUserCannotEnter(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root starts the server as another user")
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: filepath.Join(closed, "data")})
	if err == nil || !strings.Contains(err.Error(), "cannot enter "+filepath.Dir(closed)) {
		t.Errorf("got %v, want an error with the directory", err)
	}
}

func TestDefaultDir(t *testing.T) {
	dir, err := embedded.DefaultDir()
	if err != nil || !filepath.IsAbs(dir) || filepath.Base(dir) != "taskledger" {
		t.Errorf("got %q, %v", dir, err)
	}
}
