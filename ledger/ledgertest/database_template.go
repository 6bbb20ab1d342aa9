package ledgertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/migrations"
)

// templates makes databases on one server as copies of a migrated one.
type templates struct {
	server *url.URL
	name   string // of the migrated database: a new one whenever a migration changes
	how    string // the copy is made
}

// newTemplates makes sure that the server at address has a migrated database
// to copy. Any number of test processes may do so at once.
func newTemplates(ctx context.Context, address string) (*templates, error) {
	server, err := url.Parse(address)
	if err != nil || server.Host == "" {
		return nil, fmt.Errorf("the server's address must look like postgres://user:password@host:port/database")
	}
	sum, err := hash(migrations.FS)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	t := &templates{server: server, name: "taskledger_template_" + sum}
	const fileCopyExists = "select current_setting('server_version_num')::int >= 150000"
	var choice bool
	if err := conn.QueryRow(ctx, fileCopyExists).Scan(&choice); err != nil {
		return nil, err
	}
	if choice {
		// Half the time of the default, which writes every page to the WAL.
		// Versions before 15 know nothing else.
		t.how = " strategy file_copy"
	}
	return t, t.build(ctx, conn)
}

// build makes the template unless it is there. It gets its name when it is
// complete, so that no other process copies half of it.
func (t *templates) build(ctx context.Context, conn *pgx.Conn) error {
	const lock = "select pg_advisory_lock(hashtext($1))" // released with the connection
	if _, err := conn.Exec(ctx, lock, t.name); err != nil {
		return err
	}
	var there bool
	const exists = "select exists (select from pg_database where datname = $1)"
	if err := conn.QueryRow(ctx, exists, t.name).Scan(&there); err != nil || there {
		return err
	}
	unfinished := t.name + "_unfinished"
	for _, statement := range []string{"drop database if exists " + unfinished, "create database " + unfinished} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := migrations.Up(ctx, t.url(unfinished)); err != nil {
		return err
	}
	for _, statement := range []string{
		// A single connection to it would make every copy fail.
		"alter database " + unfinished + " allow_connections false",
		"alter database " + unfinished + " rename to " + t.name,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// clone makes the database name.
func (t *templates) clone(ctx context.Context, name string) error {
	return execute(ctx, t.url(""), "create database "+name+" template "+t.name+t.how)
}

// url returns the address of a database, or of the one given with the server.
func (t *templates) url(database string) string {
	address := *t.server
	if database != "" {
		address.Path = "/" + database
	}
	return address.String()
}

// execute executes one statement on a connection of its own.
func execute(ctx context.Context, address, statement string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// hash names a set of files by what they are called and what is in them.
func hash(files fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		_, _ = fmt.Fprintf(sum, "%q %q\n", name, text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6]), err
}
