package pgserver_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/pgserver"
)

// install makes executable files with the names of the server's binaries, which print a version.
func install(t *testing.T, dir, version string, names ...string) string {
	t.Helper()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
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
		install(t, filepath.Join(root, "lib", version, "bin"), version, "postgres", "initdb")
	}
	install(t, filepath.Join(root, "lib", "18", "bin"), "18", "postgres") // a client package
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

	data := t.TempDir()
	for version, want := range map[string]string{"15": "15", "17": "17", "18": ""} {
		if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(version+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := pgserver.FindBinariesOf(data)
		switch {
		case want != "" && (err != nil || got != filepath.Join(root, "lib", want, "bin")):
			t.Errorf("for data of %s: %s, %v", version, got, err)
		case want == "" && (err == nil || !strings.Contains(err.Error(), "which made the data in "+data)):
			t.Errorf("for data of %s: %s, %v, want an error with the data", version, got, err)
		}
	}

	printed := install(t, filepath.Join(root, "printed"), "16.2", "postgres", "initdb")
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

	// A version that the migrations refuse is not used, unless it is named.
	install(t, linked, "14.9", "postgres", "initdb")
	find(printed)

	given := filepath.Join(root, "lib", "9.6", "bin")
	t.Setenv(pgserver.Variable, given)
	find(given)
	empty := t.TempDir()
	t.Setenv(pgserver.Variable, empty)
	if _, err := pgserver.FindBinaries(""); err == nil || !strings.Contains(err.Error(), empty) {
		t.Errorf("with an empty directory in %s: %v, want an error that names it", pgserver.Variable, err)
	}
}

// The error begins with the cause, and names the package of this machine's package manager.
func TestMissingBinariesNameTheCure(t *testing.T) {
	bin := install(t, t.TempDir(), "", "apt-get")
	t.Setenv("PATH", bin)
	t.Setenv(pgserver.Variable, "")
	pgserver.SetInstalled(t, filepath.Join(t.TempDir(), "*", "bin"))
	empty := t.TempDir()
	noNetwork := errors.New("fetch PostgreSQL: no network")
	for _, test := range []struct {
		config pgserver.Config
		want   string
	}{
		{pgserver.Config{}, "PostgreSQL is not installed; install it: apt-get install postgresql"},
		{pgserver.Config{Binaries: empty},
			empty + " does not have postgres and initdb; install it: apt-get install postgresql"},
		{pgserver.Config{Fetch: func(context.Context) (string, error) { return "", noNetwork }},
			"fetch PostgreSQL: no network; PostgreSQL is not installed; install it: apt-get install postgresql"},
	} {
		_, err := pgserver.Start(t.Context(), test.config)
		var missing *pgserver.NoBinariesError
		if !errors.As(err, &missing) || err.Error() != test.want {
			t.Errorf("got %v, want a NoBinariesError: %s", err, test.want)
		}
		if test.config.Fetch != nil && !errors.Is(err, noNetwork) {
			t.Errorf("%v does not wrap the cause", err)
		}
	}
}
