package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// DefaultDir returns the default data directory:
//
//	root     /var/lib/taskledger: unlike /root, the server's user can enter it
//	macOS    ~/Library/Application Support/taskledger
//	others   $XDG_DATA_HOME/taskledger, or ~/.local/share/taskledger
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/taskledger", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("data directory: no home directory: %w", err)
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return filepath.Join(home, "Library", "Application Support", "taskledger"), nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "taskledger"), nil
	}
	return filepath.Join(home, ".local", "share", "taskledger"), nil
}

// makeDir makes the data directory. Other users may pass through it, because a server that root starts
// runs as another user, but they cannot list it.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return checkPassable(dir)
}

// checkPassable returns an error with the directory that the server's user cannot enter, if this process
// runs as root. PostgreSQL's own error is "permission denied" without it.
func checkPassable(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	for d := dir; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			return err
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("root runs the server as another user, which cannot enter %s: "+
				"choose another data directory, or chmod o+x", d)
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}
