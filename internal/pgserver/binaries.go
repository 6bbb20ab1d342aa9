package pgserver

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// installed are patterns of the directories where packages install the binaries without a link in
// PATH, one directory for each version.
var installed = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // RedHat, from postgresql.org
	"/usr/libexec/postgresql*",                           // Alpine
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/usr/local/pgsql/bin",                               // built from source
}

// NoBinariesError reports that PostgreSQL's server binaries were not found. Its text has the cure.
type NoBinariesError struct {
	Searched []string // places, in the order of the search
}

func (e *NoBinariesError) Error() string {
	return fmt.Sprintf("no PostgreSQL server binaries (postgres, initdb) in %s; "+
		"install them (Debian, Ubuntu: apt install postgresql; Fedora: dnf install postgresql-server; "+
		"Homebrew: brew install postgresql@17)",
		strings.Join(e.Searched, ", "))
}

// Variable is the environment variable with the directory of postgres and initdb, for a version that is
// not the first one found.
const Variable = "TASKLEDGER_POSTGRES_BINARIES"

// findBinaries returns the directory of the server's binaries: dir or that of [Variable] if given. Otherwise
// it is the first of these: the directory of postgres in PATH, the one that pg_config prints, the highest
// version in the installed ones.
func findBinaries(dir string) (string, error) {
	if dir = cmp.Or(dir, os.Getenv(Variable)); dir != "" {
		if hasServer(dir) {
			return dir, nil
		}
		return "", &NoBinariesError{[]string{dir}}
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// PATH may have a link to postgres alone; initdb is beside the link's target.
		if path, err = filepath.EvalSymlinks(path); err == nil && hasServer(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); hasServer(dir) {
			return dir, nil
		}
	}
	var candidates []string
	for _, pattern := range installed {
		dirs, _ := filepath.Glob(pattern) // the patterns are well-formed
		candidates = append(candidates, slices.DeleteFunc(dirs, func(dir string) bool { return !hasServer(dir) })...)
	}
	if len(candidates) == 0 {
		return "", &NoBinariesError{append([]string{"PATH", "pg_config --bindir"}, installed...)}
	}
	return slices.MaxFunc(candidates, func(a, b string) int { return cmp.Compare(version(a), version(b)) }), nil
}

// hasServer reports whether dir has the executables postgres and initdb.
func hasServer(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

var number = regexp.MustCompile(`\d+(\.\d+)?`)

// version returns the version in the name of an installed directory, or 0. It is the last number,
// because parent directories may have numbers too.
func version(dir string) float64 {
	numbers := append([]string{"0"}, number.FindAllString(dir, -1)...)
	v, _ := strconv.ParseFloat(numbers[len(numbers)-1], 64)
	return v
}
