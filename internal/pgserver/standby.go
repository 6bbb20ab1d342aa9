package pgserver

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Standby starts a temporary server that is a hot standby of s: it replicates s by streaming and accepts read-only
// queries. It uses the settings and the password of s, and its own port. It continues after restarts of s. The caller
// must close it. Standby returns the errors of [Start]; its error wraps [ErrNotInstalled] if the server's binaries do
// not include pg_basebackup.
func (s *Server) Standby(ctx context.Context) (*Server, error) { return s.StandbyIn(ctx, "") }

// StandbyIn is [Server.Standby] with a directory that stays, see [Config].
func (s *Server) StandbyIn(ctx context.Context, dir string) (*Server, error) {
	if err := s.hasTool("pg_basebackup"); err != nil {
		return nil, fmt.Errorf("start a standby: %w", err)
	}
	config := s.config
	config.Dir, config.Port = dir, 0
	return open(ctx, config, func(ctx context.Context, standby *Server) error {
		if err := standby.setPassword(s.password); err != nil {
			return err
		}
		return standby.makeData(func(data string) error {
			return standby.run(ctx, "pg_basebackup", "--pgdata="+data, "--host=127.0.0.1",
				fmt.Sprintf("--port=%d", s.port), "--username="+superuser, "--no-password",
				"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
		})
	})
}

// Promote makes a standby a primary. It returns when the server accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var promoted bool
	if err := conn.QueryRow(ctx, "select pg_promote()").Scan(&promoted); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if !promoted {
		return fmt.Errorf("promote: the standby is not a primary after a minute:\n%s", lastLines(s.path("log")))
	}
	return nil
}
