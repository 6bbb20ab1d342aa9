package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// Backup is a base backup of a server. One server can be started from it.
type Backup struct {
	from *Server
	data string
}

// Backup takes a base backup of the running server. The backup is stored next to the server's data, so a temporary
// server removes it. The error wraps [ErrNotInstalled] if the server's binaries do not include pg_basebackup.
func (s *Server) Backup(ctx context.Context) (*Backup, error) {
	if err := s.hasTool("pg_basebackup"); err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp(s.dir, "backup-")
	if err == nil {
		err = s.account.own(data)
	}
	if err == nil {
		err = s.run(ctx, "pg_basebackup", "--pgdata="+data, "--host=127.0.0.1", fmt.Sprintf("--port=%d", s.port),
			"--username="+superuser, "--no-password", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	}
	if err != nil {
		return nil, fmt.Errorf("back up the server: %w", err)
	}
	return &Backup{from: s, data: data}, nil
}

// Start starts a temporary server on the backup. It keeps the original server's password and settings, overridden by
// settings. With restore_command it recovers archived WAL first, and is a standby until it has reached the target. The
// caller must close the server. Start returns the errors of [Start].
func (b *Backup) Start(ctx context.Context, settings map[string]string) (*Server, error) {
	config := b.from.temporaryWith(settings)
	return open(ctx, config, func(_ context.Context, s *Server) error {
		if err := s.setPassword(b.from.password); err != nil {
			return err
		}
		if err := os.Rename(b.data, s.path("data")); err != nil {
			return err
		}
		if config.Settings["restore_command"] == "" {
			return nil
		}
		file, err := create(s.path("data", "recovery.signal"))
		if err != nil {
			return err
		}
		return errors.Join(s.account.letRead(file), file.Close())
	})
}

// temporaryWith returns the configuration of a temporary server with the settings of s, overridden by settings.
func (s *Server) temporaryWith(settings map[string]string) Config {
	config := s.config
	config.Dir, config.Port = "", 0
	config.Settings = maps.Clone(config.Settings)
	if config.Settings == nil {
		config.Settings = make(map[string]string)
	}
	maps.Copy(config.Settings, settings)
	return config
}

// Upgrade runs pg_upgrade with these binaries on the data of the server, which must be stopped. It starts a temporary
// server on the result, with the same settings and password. The caller must close that server. Upgrade returns the
// errors of [Start]; its error wraps [ErrNotInstalled] if the binaries do not include pg_upgrade.
func (s *Server) Upgrade(ctx context.Context, binaries string) (*Server, error) {
	config := s.config
	config.Dir, config.Port, config.Binaries = "", 0, binaries
	return open(ctx, config, func(ctx context.Context, next *Server) error {
		if err := next.hasTool("pg_upgrade"); err != nil {
			return err
		}
		if err := next.setPassword(s.password); err != nil {
			return err
		}
		if err := next.makeData(next.initdb(ctx)); err != nil {
			return err
		}
		work, err := os.MkdirTemp(next.dir, "upgrade-")
		if err == nil {
			err = next.account.own(work)
		}
		if err != nil {
			return err
		}
		cmd := next.command(ctx, "pg_upgrade", "--old-bindir="+s.binaries, "--new-bindir="+next.binaries,
			"--old-datadir="+s.path("data"), "--new-datadir="+next.path("data"), "--username="+superuser,
			"--socketdir="+work, "--no-sync")
		cmd.Dir = work
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("pg_upgrade: %w\n%s", err, out)
		}
		return os.RemoveAll(work)
	})
}

// Tool returns the path of a client tool, such as pg_dump. The error wraps [ErrNotInstalled] if the server's binaries
// do not include the tool.
func (s *Server) Tool(name string) (string, error) {
	return filepath.Join(s.binaries, name), s.hasTool(name)
}

func (s *Server) hasTool(name string) error {
	path := filepath.Join(s.binaries, name)
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("PostgreSQL's binaries lack a client tool: %s is %w", path, ErrNotInstalled)
	}
	return err
}

// ErrNotInstalled means that the machine lacks a tool or a library. A missing file of another kind is another error.
var ErrNotInstalled = errors.New("not installed")
