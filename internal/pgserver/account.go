package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is the user as whom the server runs; nil means as we do.
type account struct {
	name     string
	uid, gid int
}

// serverAccount returns nil for an ordinary user. PostgreSQL refuses to run as
// root, so root becomes the user that its packages create.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var found *user.User
	var err error
	for _, name := range []string{"postgres", "_postgres"} {
		if found, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres to run it as (%w); "+
			"start as an ordinary user, or name a running server with --database-url", err)
	}
	uid, err1 := strconv.Atoi(found.Uid)
	gid, err2 := strconv.Atoi(found.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("user %s: %w", found.Username, err)
	}
	return &account{found.Username, uid, gid}, nil
}

// own gives a file or directory to the account.
func (a *account) own(name string) error {
	if a == nil {
		return nil
	}
	return os.Chown(name, a.uid, a.gid)
}

// makeDir makes dir, for the account alone, and what is missing above it, open
// to pass through. A dir that exists stays as it is.
func (a *account) makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return errors.Join(err, a.own(dir))
}
