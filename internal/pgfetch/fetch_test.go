//go:build unix

package pgfetch_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/taskledger/taskledger/internal/pgfetch"
)

// registry is an npm registry that has one archive.
type registry struct {
	*httptest.Server
	archive  pgfetch.Archive
	requests atomic.Int64
}

// newRegistry packs files, by their names in the archive. Those of a directory bin are executable.
func newRegistry(t *testing.T, files map[string]string) *registry {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for name, text := range files {
		mode := int64(0o644)
		if strings.Contains(name, "/bin/") {
			mode = 0o755
		}
		header := &tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	hash := sha512.Sum512(packed.Bytes())
	r := &registry{archive: pgfetch.Archive{Name: "some-x64", Version: "18.99.0-beta.1",
		Integrity: "sha512-" + base64.StdEncoding.EncodeToString(hash[:])}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.requests.Add(1)
		if request.URL.Path != "/@embedded-postgres/some-x64/-/some-x64-18.99.0-beta.1.tgz" {
			http.NotFound(w, request)
			return
		}
		_, _ = w.Write(packed.Bytes())
	}))
	t.Cleanup(r.Close)
	return r
}

const runs = "#!/bin/sh\necho postgres 18.99\n"

// An archive is fetched once by any number of processes, and every user can read what is in it.
func TestArchiveIsFetchedOnce(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // narrow; no other test runs meanwhile
	r := newRegistry(t, map[string]string{
		"package/package.json":            "{}",
		"package/native/bin/postgres":     runs,
		"package/native/bin/initdb":       runs,
		"package/native/lib/pg/libx.so.1": "x",
		"package/native/pg-symlinks.json": `[{"source":"native/lib/pg/libx.so.1","target":"native/lib/libx.so"}]`,
	})
	var notices atomic.Int64
	c := pgfetch.Config{
		Dir: filepath.Join(t.TempDir(), "made"), Registry: r.URL + "/", Archive: r.archive,
		Begin: func(pgfetch.Notice) { notices.Add(1) },
	}
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			if _, err := pgfetch.Binaries(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	bin, err := pgfetch.Binaries(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.requests.Load(); n != 1 || notices.Load() != 1 {
		t.Errorf("%d requests and %d notices, want one of each", n, notices.Load())
	}
	home := filepath.Dir(bin)
	for name, want := range map[string]os.FileMode{
		"../": 0o755, "": 0o755, "bin": 0o755, "bin/postgres": 0o755, "lib/pg": 0o755, "lib/pg/libx.so.1": 0o644,
	} {
		info, err := os.Stat(filepath.Join(home, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v, want mode %o", name, info, err, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(home, "lib/libx.so")); err != nil || string(text) != "x" {
		t.Errorf("the link leads to %q, %v", text, err)
	}
}

// An archive with another content is not unpacked, and nothing is kept of one that cannot be used.
func TestUnusableArchiveIsRefused(t *testing.T) {
	t.Parallel()
	good := newRegistry(t, map[string]string{"package/native/bin/postgres": runs})
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	outside := newRegistry(t, map[string]string{"package/native/../../outside": "x"})
	foreign := newRegistry(t, map[string]string{"package/native/bin/postgres": "#!/bin/sh\nexit 127\n"})
	other := good.archive
	other.Integrity = outside.archive.Integrity
	for _, test := range []struct {
		name, registry string
		archive        pgfetch.Archive
		want           string
	}{
		{name: "another content", registry: good.URL, archive: other, want: "the integrity of " + good.URL},
		{name: "another version", registry: good.URL, archive: pgfetch.Archive{Name: "some-x64", Version: "18.0.0"},
			want: "404 Not Found"},
		{name: "no network", registry: closed.URL, archive: good.archive, want: "connection refused"},
		{name: "name outside", registry: outside.URL, archive: outside.archive, want: "path escapes from parent"},
		{name: "does not run", registry: foreign.URL, archive: foreign.archive,
			want: "its binaries do not run here: exit status 127"},
	} {
		dir := t.TempDir()
		c := pgfetch.Config{Dir: dir, Registry: test.registry, Archive: test.archive}
		_, err := pgfetch.Binaries(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "lock" {
			t.Errorf("%s: kept %v, %v", test.name, entries, err)
		}
	}
}

// The files of a process that was killed do not stop the next one.
func TestFetchAfterAKilledProcess(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, map[string]string{"package/native/bin/postgres": runs})
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "unfinished", "postgres", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := pgfetch.Binaries(t.Context(), pgfetch.Config{Dir: dir, Registry: r.URL, Archive: r.archive})
	if err != nil {
		t.Error(err)
	}
}

// The registry has the archives of five platforms with the integrity that is written here.
func TestRegistryHasEachArchive(t *testing.T) {
	t.Parallel()
	address := cmp.Or(os.Getenv(pgfetch.RegistryVariable), pgfetch.DefaultRegistry)
	if len(pgfetch.Archives) != 5 {
		t.Errorf("%d platforms, want 5", len(pgfetch.Archives))
	}
	for platform, archive := range pgfetch.Archives {
		response, err := http.Get(address + "/@embedded-postgres/" + archive.Name + "/" + archive.Version)
		if err != nil {
			t.Skipf("npm's registry cannot be reached: %v", err)
		}
		defer response.Body.Close()
		var metadata struct {
			Dist struct{ Integrity string }
		}
		if err := json.NewDecoder(response.Body).Decode(&metadata); err != nil {
			t.Fatalf("%s: %s, %v", platform, response.Status, err)
		}
		if metadata.Dist.Integrity != archive.Integrity {
			t.Errorf("%s: the registry has %q, want %q", platform, metadata.Dist.Integrity, archive.Integrity)
		}
	}
}
