package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is the user that the server runs as. Nil: the user of this process.
type account struct {
	name     string
	uid, gid int
}

// serverAccount returns nil for an ordinary user. For root, as which PostgreSQL refuses to run, it
// returns the user that PostgreSQL's packages create.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var server *user.User
	var err error
	for _, name := range []string{"postgres", "_postgres"} {
		if server, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL cannot run as root, and user postgres does not exist (%w); "+
			"start as an ordinary user, or set --database-url to a running server", err)
	}
	uid, err1 := strconv.Atoi(server.Uid)
	gid, err2 := strconv.Atoi(server.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("user %s: %w", server.Username, err)
	}
	return &account{server.Username, uid, gid}, nil
}

// chown makes the account the owner of a file or directory.
func (a *account) chown(name string) error {
	if a == nil {
		return nil
	}
	return os.Chown(name, a.uid, a.gid)
}

// makeDir makes dir with mode 0700, owned by the account, and its missing parents with mode 0755. It
// does not change a dir that exists.
func (a *account) makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return errors.Join(err, a.chown(dir))
}
