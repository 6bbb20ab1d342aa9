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

// oldest is the oldest major version of PostgreSQL that supports the migrations.
const oldest = 15

// NoBinariesError reports that PostgreSQL's server binaries were not found. Its text contains the cure.
type NoBinariesError struct {
	Searched []string // places, in the order of the search
	Data     string   // directory of data that only binaries of version Major can read; "": none
	Major    int
	Fetch    error // why they could not be fetched; nil: that was not tried
}

func (e *NoBinariesError) Error() string {
	what, cure := "PostgreSQL is not installed", "install it: "+InstallCommand()
	switch {
	case e.Data != "":
		what = fmt.Sprintf("PostgreSQL %d, which made the data in %s, is not installed", e.Major, e.Data)
		cure = fmt.Sprintf("install PostgreSQL %d", e.Major)
	case len(e.Searched) == 1:
		what = fmt.Sprintf("%s does not have postgres and initdb", e.Searched[0])
	}
	if e.Fetch != nil {
		return fmt.Sprintf("%v; %s; %s", e.Fetch, what, cure)
	}
	return what + "; " + cure
}

func (e *NoBinariesError) Unwrap() error { return e.Fetch }

// InstallCommand returns the command that installs PostgreSQL's server binaries on this machine.
func InstallCommand() string {
	for _, c := range []string{
		"apt-get install postgresql", "dnf install postgresql-server", "apk add postgresql",
		"brew install postgresql@17",
	} {
		if _, err := exec.LookPath(strings.Fields(c)[0]); err == nil {
			return c
		}
	}
	return "https://www.postgresql.org/download"
}

// Variable is the environment variable with the directory of postgres and initdb, for a version that is
// not the first one found.
const Variable = "TASKLEDGER_POSTGRES_BINARIES"

// FindBinaries returns the directory of the server's binaries: dir or the directory in [Variable], if given. Otherwise
// it tries postgres in PATH, the directory that pg_config prints, and the highest installed version. It returns the
// first directory whose version the migrations support. The error is a *[NoBinariesError].
func FindBinaries(dir string) (string, error) { return findBinaries(dir, "") }

// findBinaries is [FindBinaries] for the data in a directory, which may not exist yet: only the version that made the
// data can read it.
func findBinaries(dir, data string) (string, error) {
	if dir = cmp.Or(dir, os.Getenv(Variable)); dir != "" {
		if hasServer(dir) {
			return dir, nil
		}
		return "", &NoBinariesError{Searched: []string{dir}}
	}
	missing := &NoBinariesError{Searched: append([]string{"PATH", "pg_config --bindir"}, installed...)}
	if text, err := os.ReadFile(filepath.Join(data, "PG_VERSION")); err == nil {
		missing.Major, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		missing.Data = data
	}
	for _, dir := range candidates() {
		if v := majorVersion(dir); v == missing.Major || missing.Major == 0 && v >= oldest {
			return dir, nil
		}
	}
	return "", missing
}

// candidates returns the directories of server binaries on this machine, in the order of preference.
func candidates() (dirs []string) {
	if path, err := exec.LookPath("postgres"); err == nil {
		// PATH may contain a link to postgres alone; initdb is next to the link's target.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	var packaged []string
	for _, pattern := range installed {
		matches, _ := filepath.Glob(pattern) // the patterns are well-formed
		packaged = append(packaged, matches...)
	}
	slices.SortStableFunc(packaged, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	return slices.DeleteFunc(append(dirs, packaged...), func(dir string) bool { return !hasServer(dir) })
}

// hasServer reports whether dir contains the executables postgres and initdb.
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

// majorVersion returns the major version that the server in a directory prints, or 0.
func majorVersion(dir string) int {
	out, _ := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	major, _, _ := strings.Cut(number.FindString(string(out)), ".")
	v, _ := strconv.Atoi(major)
	return v
}
