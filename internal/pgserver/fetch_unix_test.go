//go:build unix

package pgserver_test

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgfetch"
	"github.com/taskledger/taskledger/internal/pgserver"
)

// repository is a Maven repository that has the binaries of this machine.
type repository struct {
	*httptest.Server
	archive  pgfetch.Archive
	jar      []byte
	requests atomic.Int64
}

// newRepository packs the binaries of this machine. It skips the test where that is not possible.
func newRepository(t *testing.T) *repository {
	t.Helper()
	bin, err := pgserver.FindBinaries("")
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Dir(bin)
	if filepath.Base(bin) != "bin" || !strings.ContainsAny(filepath.Base(home), "0123456789") {
		t.Skipf("%s has more than PostgreSQL", home)
	}
	for _, tool := range []string{"tar", "xz"} {
		if _, err := osexec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	tar := osexec.Command("tar", "--create", "--xz", "--exclude=lib/bitcode", "--directory="+home, "bin/postgres",
		"bin/initdb", "bin/pg_ctl", "lib")
	tar.Env = append(os.Environ(), "XZ_OPT=-0 -T2")
	packed, err := tar.Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	jar := zip.NewWriter(file)
	entry, err := jar.CreateHeader(&zip.FileHeader{Name: "postgres.txz"})
	if err == nil {
		_, err = entry.Write(packed)
	}
	if err := errors.Join(err, jar.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	r := &repository{}
	if r.jar, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(r.jar)
	r.archive = pgfetch.Archive{Version: "17.99.0", SHA256: hex.EncodeToString(hash[:])}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.requests.Add(1)
		if !strings.HasSuffix(request.URL.Path, "/17.99.0/embedded-postgres-binaries-"+platform()+"-17.99.0.jar") {
			http.NotFound(w, request)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(r.jar)))
		_, _ = w.Write(r.jar)
	}))
	t.Cleanup(r.Close)
	return r
}

// platform is this one in names of archives.
func platform() string {
	return runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "arm64", "arm64v8", 1)
}

// asOrdinaryUser runs a test of root in another process as user postgres, and reports whether it did.
func asOrdinaryUser(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return false
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Skip(err)
	}
	uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
	dir, err3 := os.MkdirTemp("", "taskledger-fetch-")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "program")
	text, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.WriteFile(program, text, 0o755), os.Chmod(dir, 0o755),
			os.Mkdir(filepath.Join(dir, "home"), 0o700), os.Chown(filepath.Join(dir, "home"), int(uid), int(gid)))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = filepath.Join(dir, "home")
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "TMPDIR="+cmd.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skip("skipped as user postgres")
	}
	return true
}

// Where PostgreSQL is not installed, it is fetched once, and its server runs.
func TestFetchedServer(t *testing.T) {
	if asOrdinaryUser(t) {
		return
	}
	r := newRepository(t)
	hideBinaries(t)
	var shown, total int64
	var notice pgfetch.Notice
	c := pgfetch.Config{
		Dir: t.TempDir(), Repository: r.URL + "/", Archive: r.archive,
		Begin:    func(n pgfetch.Notice) { notice = n },
		Progress: func(done, all int64) { shown, total = done, all },
	}
	server, err := pgserver.Start(t.Context(), pgserver.Config{NoSync: true, Fetch: fetchWith(c)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	again, err := pgfetch.Binaries(t.Context(), c)
	if again != filepath.Join(notice.Dir, "bin") || err != nil {
		t.Errorf("the second time: %s, %v", again, err)
	}
	if n := r.requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if shown != int64(len(r.jar)) || total != shown {
		t.Errorf("the progress ended at %d of %d, want %d", shown, total, len(r.jar))
	}
	if notice.Version != "17.99.0" || notice.Repository != r.URL || !strings.HasPrefix(notice.Dir, c.Dir) {
		t.Errorf("the notice is %+v", notice)
	}
}

// An archive with another content is not unpacked, nothing is kept, and the error names the package to install.
func TestForeignArchiveIsRefused(t *testing.T) {
	if asOrdinaryUser(t) {
		return
	}
	hideBinaries(t)
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if strings.HasSuffix(request.URL.Path, ".sha256") {
			t.Error("the repository is asked for the checksum")
		}
		_, _ = io.WriteString(w, "another archive")
	}))
	defer repository.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	for name, test := range map[string]struct{ repository, want string }{
		"another content": {repository.URL, "is not the archive that is expected: its SHA-256 is"},
		"no such archive": {missing.URL, "404 Not Found"},
		"no network":      {closed.URL, "connection refused"},
	} {
		dir := t.TempDir()
		_, err := pgserver.Start(t.Context(), pgserver.Config{Fetch: fetchWith(pgfetch.Config{
			Dir: dir, Repository: test.repository, Archive: pgfetch.Archive{
				Version: "17.99.0", SHA256: strings.Repeat("0", 64),
			},
		})})
		var cure *pgserver.NoBinariesError
		if !errors.As(err, &cure) || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "apt install postgresql") {
			t.Errorf("%s: got %v", name, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: kept %v, %v", name, entries, err)
		}
	}
}

// hideBinaries makes the binaries of this machine unknown to package pgserver.
func hideBinaries(t *testing.T) {
	t.Helper()
	pgserver.SetInstalled(t)
	t.Setenv(pgserver.Variable, "")
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "pg_config"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path+":/usr/bin:/bin")
	if dir, err := pgserver.FindBinaries(""); err == nil {
		t.Skipf("%s has PostgreSQL, and what a shell needs", dir)
	}
}

func fetchWith(c pgfetch.Config) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return pgfetch.Binaries(ctx, c) }
}
