package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// DefaultDir returns where the servers keep their data if nobody says otherwise:
//
//	root     /var/lib/taskledger, which the server's user can enter, as it cannot /root
//	macOS    ~/Library/Application Support/taskledger
//	others   $XDG_DATA_HOME/taskledger, or ~/.local/share/taskledger
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/taskledger", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory to keep data in: %w", err)
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return filepath.Join(home, "Library", "Application Support", "taskledger"), nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "taskledger"), nil
	}
	return filepath.Join(home, ".local", "share", "taskledger"), nil
}

// makeDir makes the data directory. Others may pass through it, since a server that root starts
// runs as another user, but see nothing of what is in it.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return checkPassable(dir)
}

// checkPassable tells root which directory keeps the server's user from its data, where
// PostgreSQL would only say that permission is denied.
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
			return fmt.Errorf("user postgres, as whom root runs the server, cannot enter %s: choose another data directory, or chmod o+x", d)
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}
