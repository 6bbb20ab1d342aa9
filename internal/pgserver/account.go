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

// serverAccount returns nil for an ordinary user. PostgreSQL refuses to run as root; for root it returns the owner of
// the data. Without data it returns the user that PostgreSQL's packages create, else the machine's unprivileged user.
func serverAccount(data string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	server := ownerOf(data)
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		if server == nil {
			server, _ = user.Lookup(name)
		}
	}
	if server == nil {
		return nil, errors.New("PostgreSQL cannot run as root, and user postgres does not exist; " +
			"start as an ordinary user, or set --database-url to a running server")
	}
	uid, err1 := strconv.Atoi(server.Uid)
	gid, err2 := strconv.Atoi(server.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("user %s: %w", server.Username, err)
	}
	return &account{server.Username, uid, gid}, nil
}

// own makes the account the owner of a directory.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(dir, a.uid, a.gid)
}

// letRead lets the account read an open file, by its group.
func (a *account) letRead(file *os.File) error {
	if a == nil {
		return nil
	}
	return errors.Join(file.Chown(-1, a.gid), file.Chmod(0o640))
}

// dirMode returns the mode of a directory that only this process's user writes, and that the account can pass through.
func (a *account) dirMode() os.FileMode {
	if a == nil {
		return 0o700
	}
	return 0o711
}

// makeDir makes dir, owned by the user of this process, and its missing parents with mode 0755. It does not change a
// dir that exists.
func (a *account) makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, a.dirMode())
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// refuseWritable returns an error if the account can replace files in dir, or dir itself.
func (a *account) refuseWritable(dir string) error {
	if a == nil {
		return nil
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for d := dir; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			return err
		}
		if a.canWrite(info) {
			return fmt.Errorf("user %[1]s, which runs PostgreSQL, can replace files that root writes in %[2]s; "+
				"choose another directory, or run: chown root %[2]s; chmod go-w,o+x %[2]s", a.name, d)
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}
