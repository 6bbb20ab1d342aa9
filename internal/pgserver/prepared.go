package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// preparedFor is how long data are kept after their last copy.
const preparedFor = 7 * 24 * time.Hour

// StartPrepared starts a temporary server with the data that prepare leaves on a server of [Start]. The first call on a
// machine runs prepare and keeps the data in the user's cache directory; later calls copy them, without initdb and
// prepare. The data are found by name, PostgreSQL's version and the server's user, so name must change whenever prepare
// does. All copies share the password and the system identifier. The server passed to prepare lacks Settings and Clock.
// If a cache directory neither exists nor can be created, each call runs prepare.
//
// The caller must close the server. StartPrepared returns the errors of [Start] and of prepare.
func StartPrepared(ctx context.Context, config Config, name string, prepare func(context.Context, *Server) error,
) (*Server, error) {
	var err error
	if config.Binaries, err = config.findBinaries(ctx); err != nil {
		return nil, err
	}
	account, err := serverAccount("")
	if err != nil {
		return nil, err
	}
	home, err := os.UserCacheDir()
	home = filepath.Join(home, "taskledger", "prepared")
	if err == nil {
		err = os.MkdirAll(home, 0o700)
	}
	if err != nil { // a container's user may lack a home, or cannot write it
		return startAndPrepare(ctx, config, prepare)
	}
	name += "-" + strconv.Itoa(majorVersion(config.Binaries))
	if account != nil {
		name += "-" + account.name
	}
	dir := filepath.Join(home, name)
	if err := keepPrepared(ctx, dir, config, prepare); err != nil {
		return nil, fmt.Errorf("prepare PostgreSQL in %s: %w", dir, err)
	}
	server, err := open(ctx, config, func(ctx context.Context, s *Server) error {
		password, err := os.ReadFile(filepath.Join(dir, "password"))
		if err != nil {
			return err
		}
		if err := s.setPassword(strings.TrimSpace(string(password))); err != nil {
			return err
		}
		return s.makeData(func(data string) error { return copyData(ctx, filepath.Join(dir, "data"), data) })
	})
	if err != nil {
		return nil, fmt.Errorf("start a copy of %s, which can be removed to prepare it again: %w", dir, err)
	}
	return server, nil
}

func startAndPrepare(ctx context.Context, config Config, prepare func(context.Context, *Server) error,
) (*Server, error) {
	server, err := Start(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, server); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return server, nil
}

// keepPrepared makes dir with data and password of a prepared server, unless dir exists. The directory appears in one
// step. Any number of processes may call it at once.
func keepPrepared(ctx context.Context, dir string, config Config, prepare func(context.Context, *Server) error,
) (err error) {
	now := time.Now()
	if os.Chtimes(dir, now, now) == nil {
		return nil
	}
	config.Settings, config.Clock = nil, nil
	server, err := startAndPrepare(ctx, config, prepare)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if err := server.Stop(ctx); err != nil {
		return err
	}
	unfinished := dir + "." + rand.Text()
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished)) }()
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	data := filepath.Join(unfinished, "data")
	if err := errors.Join(os.Mkdir(data, 0o700), server.account.own(data)); err != nil {
		return err
	}
	if err := copyData(ctx, server.path("data"), data); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(unfinished, "password"), []byte(server.password), 0o600); err != nil {
		return err
	}
	if err := syncAll(unfinished); err != nil {
		return err
	}
	if err := os.Rename(unfinished, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another process was first
		return err
	}
	return removePrepared(filepath.Dir(dir), now.Add(-preparedFor))
}

// copyData copies the contents of a data directory, with owners and modes.
func copyData(ctx context.Context, from, to string) error {
	out, err := exec.CommandContext(ctx, "cp", "-Rp", from+"/.", to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy the data: %w\n%s", err, out)
	}
	return nil
}

// syncAll writes the files and directories under dir to the disk, so that they outlive a crash of the machine as they
// are.
func syncAll(dir string) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(file.Sync(), file.Close())
	})
}

// removePrepared removes the directories in dir whose last use is before since. Each loses its name first, so that an
// interrupted removal leaves nothing that looks whole.
func removePrepared(dir string, since time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().After(since) {
			continue
		}
		if err != nil {
			return err
		}
		old := filepath.Join(dir, entry.Name())
		unnamed := old + "." + rand.Text()
		if err := os.Rename(old, unnamed); err != nil && !errors.Is(err, fs.ErrNotExist) { // another process was first
			return err
		}
		if err := os.RemoveAll(unnamed); err != nil {
			return err
		}
	}
	return nil
}
