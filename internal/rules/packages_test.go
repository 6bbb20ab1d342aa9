package rules_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listed is the output of go list for a package.
type listed struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// packages lists the packages of the workspace by their short name.
func packages(t *testing.T) map[string]listed {
	t.Helper()
	touchSources(t)
	command := exec.Command("go", "list", "-e", "-json=ImportPath,GoFiles,Imports,Deps", module+"/...")
	command.Env = inWorkspace(t)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	all := make(map[string]listed)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 { // else it has only tests
			all[short(p.ImportPath)] = p
		}
	}
}

// touchSources opens every source, so that go test does not use a cached result after a change: go list reads
// the sources in a process of its own.
func touchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".git") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		t.Fatal(err)
	}
}

// short returns the path of a package of this module from the slash on.
func short(path string) string {
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		return "/" + rest
	}
	return path
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && !strings.HasPrefix(path, "/")
}

// matches reports whether pattern matches path. A pattern is one package of this module, or another module with
// all its packages.
func matches(path, pattern string) bool {
	if strings.HasPrefix(pattern, "/") {
		below, all := strings.CutSuffix(pattern, "/...")
		return path == below || all && strings.HasPrefix(path, below+"/")
	}
	return path == pattern || strings.HasPrefix(path, pattern+"/")
}

// The function matches, on paths that are allowed and paths that are not.
func TestMatches(t *testing.T) {
	for _, test := range []struct {
		path, pattern string
		want          bool
	}{
		{path: "/ledger", pattern: "/ledger", want: true},
		{path: "/ledger/stdsql", pattern: "/ledger", want: false},
		{path: "/ledger/stdsql", pattern: "/ledger/...", want: true},
		{path: "/ledger", pattern: "/ledger/...", want: true},
		{path: "/ledgers", pattern: "/ledger/...", want: false},
		{path: pgx + "/pgxpool", pattern: pgx, want: true},
		{path: pgx + "x", pattern: pgx, want: false},
		{path: "testing", pattern: "testing", want: true},
		{path: "testing/fstest", pattern: "testing", want: true},
	} {
		if got := matches(test.path, test.pattern); got != test.want {
			t.Errorf("matches(%s, %s) = %v", test.path, test.pattern, got)
		}
	}
	for path, want := range map[string]bool{"net/http": true, "/ledger": false, pgx: false,
		"golang.org/x/sync": false} {
		if isStandard(path) != want {
			t.Errorf("isStandard(%s) = %v", path, !want)
		}
	}
}
