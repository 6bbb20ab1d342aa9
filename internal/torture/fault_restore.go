package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/pgserver"
)

var restoreFaults = []fault{{
	name: "restore", what: "a dump is restored into another cluster, which replaces the primary after a rebase",
	on: "postgres", least: 0, most: time.Second, cost: losesCommits,
	begin: func(ctx context.Context, s *stage, _ *rand.Rand) (act, error) {
		if err := s.db.replaceByDump(ctx); errors.Is(err, fs.ErrNotExist) {
			return act{}, errSkipped // the binaries do not include client tools
		} else if err != nil {
			return act{}, err
		}
		s.redirect()
		return act{"primary", s.db.addStandby}, nil
	},
}}

// replaceByDump dumps the database and makes a new cluster with the dump the primary. Commits between
// the dump and the end of the old primary are lost. The caller adds a standby.
func (c *cluster) replaceByDump(ctx context.Context) (err error) {
	roles, err := tool(ctx, c.primary, nil, "pg_dumpall", "--roles-only", "--dbname="+c.primary.URL("postgres"))
	if err != nil {
		return err
	}
	dump, err := tool(ctx, c.primary, nil, "pg_dump", c.primary.URL(database))
	if err != nil {
		return err
	}
	config := c.config()
	next, err := pgserver.Start(ctx, config)
	if err != nil {
		return errors.Join(err, os.RemoveAll(config.Dir))
	}
	if err := load(ctx, next, roles, dump); err != nil {
		return errors.Join(err, next.Close(), os.RemoveAll(config.Dir))
	}
	lost := []*pgserver.Server{c.primary, c.standby}
	dirs := []string{c.primaryDir, c.standbyDir}
	c.primary, c.primaryDir, c.standby, c.standbyDir = next, config.Dir, nil, ""
	for i, server := range lost {
		if server != nil {
			err = errors.Join(err, server.Kill(), server.Close(), os.RemoveAll(dirs[i])) // the disk is small
		}
	}
	return err
}

// load restores a dump and its roles as an operator does, with the command that the error of the relay names.
func load(ctx context.Context, server *pgserver.Server, roles, dump []byte) error {
	var others [][]byte // the superuser exists, and has another password
	for line := range bytes.Lines(roles) {
		if !bytes.Contains(line, []byte(" ROLE postgres")) {
			others = append(others, line)
		}
	}
	steps := []struct {
		database string
		input    []byte
	}{
		{database: "postgres", input: bytes.Join(others, nil)},
		{database: "postgres", input: []byte("create database " + database)},
		{database: database, input: dump},
	}
	for _, step := range steps {
		_, err := tool(ctx, server, step.input, "psql", server.URL(step.database), "-q", "-v", "ON_ERROR_STOP=1")
		if err != nil {
			return err
		}
	}
	owner, err := pgxpool.New(ctx, server.URL(database))
	if err != nil {
		return err
	}
	defer owner.Close()
	if needed, err := feed.Rebase(ctx, owner, nil); err != nil || !needed {
		return fmt.Errorf("rebase of a restored dump: needed %t: %w", needed, err)
	}
	return nil
}

// tool runs a client tool of PostgreSQL and returns its output.
func tool(ctx context.Context, server *pgserver.Server, input []byte, name string, args ...string) ([]byte, error) {
	path, err := server.Tool(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, stderr.Bytes())
	}
	return out, nil
}
