package pgserver_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/pgserver"
)

// install makes executable files with the names of the server's binaries.
func install(t *testing.T, dir string, names ...string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindBinaries(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"9.6", "9.5", "15", "17"} {
		install(t, filepath.Join(root, "lib", version, "bin"), "postgres", "initdb")
	}
	install(t, filepath.Join(root, "lib", "18", "bin"), "postgres") // a client package
	pgserver.SetInstalled(t, filepath.Join(root, "lib", "*", "bin"))
	t.Setenv(pgserver.Variable, "")

	path := filepath.Join(root, "path")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	find := func(want string) {
		t.Helper()
		if got, err := pgserver.FindBinaries(""); got != want || err != nil {
			t.Errorf("found %q, %v; want %q", got, err, want)
		}
	}
	find(filepath.Join(root, "lib", "17", "bin"))

	printed := install(t, filepath.Join(root, "printed"), "postgres", "initdb")
	script := "#!/bin/sh\necho " + printed + "\n"
	if err := os.WriteFile(filepath.Join(path, "pg_config"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	find(printed)

	linked := filepath.Join(root, "lib", "15", "bin")
	if err := os.Symlink(filepath.Join(linked, "postgres"), filepath.Join(path, "postgres")); err != nil {
		t.Fatal(err)
	}
	find(linked)

	given := filepath.Join(root, "lib", "9.6", "bin")
	t.Setenv(pgserver.Variable, given)
	find(given)
	empty := t.TempDir()
	t.Setenv(pgserver.Variable, empty)
	if _, err := pgserver.FindBinaries(""); err == nil || !strings.Contains(err.Error(), empty) {
		t.Errorf("with an empty directory in %s: %v, want an error that names it", pgserver.Variable, err)
	}
}

func TestMissingBinariesNameTheCure(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(pgserver.Variable, "")
	pgserver.SetInstalled(t, filepath.Join(t.TempDir(), "*", "bin"))
	for _, dir := range []string{"", t.TempDir()} {
		_, err := pgserver.Start(t.Context(), pgserver.Config{Binaries: dir})
		var missing *pgserver.NoBinariesError
		if !errors.As(err, &missing) {
			t.Fatalf("with Binaries %q: %v, want a NoBinariesError", dir, err)
		}
		for _, word := range []string{"apt install postgresql", "brew install postgresql", dir} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("with Binaries %q: no %[3]q in %[2]q", dir, err, word)
			}
		}
	}
}
