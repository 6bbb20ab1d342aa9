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

// installed are the directories in which packages put the binaries without
// linking them into PATH, one directory a version.
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

// NoBinariesError says that no PostgreSQL server is installed where one was
// looked for. Its text names the cure.
type NoBinariesError struct {
	Searched []string // places, in the order in which they were searched
}

func (e *NoBinariesError) Error() string {
	return fmt.Sprintf("no PostgreSQL server binaries (postgres, initdb) in %s; "+
		"install them (Debian, Ubuntu: apt install postgresql; Fedora: dnf install postgresql-server; "+
		"Homebrew: brew install postgresql@17) or name a running server with --database-url",
		strings.Join(e.Searched, ", "))
}

// findBinaries returns the directory with the server's binaries: dir if it is
// given, else that of the postgres in PATH, the one that pg_config tells, or
// the highest version among the installed ones.
func findBinaries(dir string) (string, error) {
	if dir != "" {
		if complete(dir) {
			return dir, nil
		}
		return "", &NoBinariesError{[]string{dir}}
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// The link in PATH may stand alone; its siblings are where it points to.
		if path, err = filepath.EvalSymlinks(path); err == nil && complete(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); complete(dir) {
			return dir, nil
		}
	}
	var found []string
	for _, pattern := range installed {
		dirs, _ := filepath.Glob(pattern) // the patterns are well-formed
		found = append(found, slices.DeleteFunc(dirs, func(dir string) bool { return !complete(dir) })...)
	}
	if len(found) == 0 {
		return "", &NoBinariesError{append([]string{"PATH", "pg_config --bindir"}, installed...)}
	}
	return slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(version(a), version(b)) }), nil
}

// complete reports whether dir holds what a server needs.
func complete(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

var number = regexp.MustCompile(`\d+(\.\d+)?`)

// version reads the version out of an installed directory's name, 0 if there
// is none: the last number, since directories above may have some too.
func version(dir string) float64 {
	numbers := append([]string{"0"}, number.FindAllString(dir, -1)...)
	v, _ := strconv.ParseFloat(numbers[len(numbers)-1], 64)
	return v
}
