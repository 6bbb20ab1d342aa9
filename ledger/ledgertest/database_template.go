package ledgertest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/backends"
	"github.com/taskledger/taskledger/migrations"
)

// templates creates databases on one server as copies of a migrated database.
type templates struct {
	server   *url.URL
	admin    *pgxpool.Pool // to server, as its superuser; it is closed with the process
	name     string        // of the migrated database; it changes whenever a migration changes
	strategy string        // clause of "create database"
	reuse    *reuse        // nil: each database is dropped after its test
}

// newTemplates returns the templates of the server at address. It creates the migrated database unless it
// exists. Any number of test processes may do so at once.
func newTemplates(ctx context.Context, address string) (*templates, error) {
	server, err := url.Parse(address)
	if err != nil || server.Host == "" {
		return nil, fmt.Errorf("%s must be postgres://user:password@host:port/database", Variable)
	}
	sum, err := templateHash()
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if err := storeOwner(address); err != nil {
		return nil, err
	}
	t := &templates{server: server, name: "taskledger_template_" + sum}
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.MaxConns = maxAdminConns
	if t.admin, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, err
	}
	const hasStrategies = "select current_setting('server_version_num')::int >= 150000"
	var canChoose bool
	if err := conn.QueryRow(ctx, hasStrategies).Scan(&canChoose); err != nil {
		return nil, err
	}
	if canChoose {
		// Takes half the time of the default, which writes every page to the WAL. It is the only strategy
		// before version 15.
		t.strategy = " strategy file_copy"
	}
	return t, t.build(ctx, conn)
}

// maxAdminConns is how many databases are created or dropped at once.
const maxAdminConns = 2

// build creates the template unless it exists. The template gets its name when it is complete, so that no
// other process copies an incomplete one.
func (t *templates) build(ctx context.Context, conn *pgx.Conn) error {
	const lock = "select pg_advisory_lock(hashtext($1))" // released with the connection
	if _, err := conn.Exec(ctx, lock, t.name); err != nil {
		return err
	}
	var exists bool
	const existsSQL = "select exists (select from pg_database where datname = $1)"
	if err := conn.QueryRow(ctx, existsSQL, t.name).Scan(&exists); err != nil || exists {
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
	if err := makeLogins(ctx, t.url(unfinished)); err != nil {
		return err
	}
	for _, statement := range []string{
		// A single connection to the template would make every copy fail.
		"alter database " + unfinished + " allow_connections false",
		"alter database " + unfinished + " rename to " + t.name,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// open returns a database for a test, and its address for a login with roles, which owns it.
func (t *templates) open(ctx context.Context, roles []string) (d *database, address string, err error) {
	isNew := false
	if t.reuse != nil {
		d = t.reuse.take()
	}
	if d == nil {
		isNew = true
		d = &database{name: "taskledger_test_" + strings.ToLower(rand.Text()[:12]), shelf: backends.NewShelf()}
	}
	if address, err = urlAs(t.url(d.name), roles); err != nil {
		return nil, "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, "", err
	}
	login := u.User.Username()
	if !isNew {
		return d, address, d.give(ctx, login)
	}
	owner := pgx.Identifier{login}.Sanitize()
	_, err = t.admin.Exec(ctx, "create database "+d.name+" owner "+owner+" template "+t.name+t.strategy)
	if err == nil && t.reuse != nil {
		t.reuse.add(d)
		err = t.reuse.learn(ctx, t.url(d.name))
	}
	return d, address, err
}

// close takes back the database of a test: for another test, or to drop it. Its connections are then closed by force,
// such as those of a killed process.
func (t *templates) close(ctx context.Context, d *database, mayReuse bool) error {
	if t.reuse != nil {
		isClean := false
		if mayReuse {
			isClean, _ = t.reuse.clean(ctx, d, t.url(d.name)) // otherwise it is dropped
		}
		if t.reuse.put(d, isClean) {
			return nil
		}
	}
	d.end(ctx)
	_, err := t.admin.Exec(ctx, "drop database "+d.name+" with (force)")
	return err
}

// url returns the address of a database; "" is the database in the address of the server.
func (t *templates) url(database string) string {
	address := *t.server
	if database != "" {
		address.Path = "/" + database
	}
	return address.String()
}

// execute executes one statement on a new connection.
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

// templateHash changes whenever the template does.
func templateHash() (string, error) {
	sum, err := hash(migrations.FS)
	if err != nil {
		return "", err
	}
	roles, err := migrations.RolesSQL(rolePrefix)
	if err != nil {
		return "", err
	}
	logins := sha256.Sum256([]byte(roles + loginsSQL()))
	return sum + hex.EncodeToString(logins[:4]), nil
}

// hash returns a hash of the names and contents of all files.
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
