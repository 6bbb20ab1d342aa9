package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/migrations"
)

// The roles of the databases of tests, which all of them share.
const (
	rolePrefix   = "taskledger_test"
	rolePassword = "password-of-logins"
)

// App stands for the roles producer and worker, which most programs of users need. It is the default.
const App = "app"

// Owner stands for the superuser that owns the ledger; no right and no policy limits it. A test needs it to migrate,
// to forge rows, or to examine the server.
const Owner = "owner"

// owners contains the superuser of each server, by [serverOf]: *url.Userinfo.
var owners sync.Map

// As returns a pool to the same database as another pool, as a login with other roles, see [Pool]. The pool is closed
// after the test.
func As(t testing.TB, like *pgxpool.Pool, roles ...string) *pgxpool.Pool {
	t.Helper()
	config := like.Config()
	_, mayKeep := opened.Load(like) // another pool may use the test's own DialFunc
	user, err := userinfo(config.ConnConfig, roles)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	config.ConnConfig.User = user.Username()
	config.ConnConfig.Password, _ = user.Password()
	return openPool(t, config, mayKeep)
}

// ExecAsOwner executes SQL as [Owner] in the database of a pool, for actions that no role allows, such as forging a
// row. It fails the test if SQL fails.
func ExecAsOwner(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	config := db.Config().ConnConfig
	user, err := userinfo(config, []string{Owner})
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	config.User = user.Username()
	config.Password, _ = user.Password()
	dialer := dialerFor(config)
	if dialer != nil {
		dialer.Keep()
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("ledgertest: %s: %v", sql, err)
	}
	if dialer != nil && strings.Contains(strings.ToLower(sql), "alter ") {
		dialer.Clear() // a session keeps the settings it began with
	}
}

// URLAs returns the address of the same database for a login with other roles, see [URL].
func URLAs(t testing.TB, address string, roles ...string) string {
	t.Helper()
	changed, err := urlAs(address, roles)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	return changed
}

func urlAs(address string, roles []string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return "", err
	}
	u.User, err = userinfo(config, roles)
	return u.String(), err
}

// storeOwner stores the superuser of a server for [userinfo].
func storeOwner(address string) error {
	config, err := pgx.ParseConfig(address)
	if err == nil {
		owners.Store(serverOf(config), url.UserPassword(config.User, config.Password))
	}
	return err
}

func serverOf(c *pgx.ConnConfig) string { return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) }

// userinfo returns the name and the password of a login with these roles.
func userinfo(c *pgx.ConnConfig, roles []string) (*url.Userinfo, error) {
	if slices.Equal(roles, []string{Owner}) {
		owner, ok := owners.Load(serverOf(c))
		if !ok {
			return nil, fmt.Errorf("no owner is stored for the server at %s", serverOf(c))
		}
		return owner.(*url.Userinfo), nil
	}
	name, err := loginName(roles)
	return url.UserPassword(name, rolePassword), err
}

// loginName returns the name of the login with exactly these roles.
func loginName(roles []string) (string, error) {
	if len(roles) == 0 {
		roles = []string{App}
	}
	var known []string
	for _, role := range migrations.Roles() {
		if slices.Contains(roles, role) || slices.Contains(roles, App) && slices.Contains(appRoles(), role) {
			known = append(known, role)
		}
	}
	for _, role := range roles {
		if role == Owner {
			return "", errors.New("the owner has every right: name no other role")
		}
		if role != App && !slices.Contains(known, role) {
			return "", fmt.Errorf("role must be %s, %s or one of %v, got %q", App, Owner, migrations.Roles(), role)
		}
	}
	if slices.Equal(known, appRoles()) {
		known = []string{App}
	}
	return migrations.RoleName(rolePrefix, strings.Join(known, "_")), nil
}

func appRoles() []string { return []string{"producer", "worker"} }

// makeLogins makes the roles in a database, and a login for each set of them.
func makeLogins(ctx context.Context, address string) error {
	if _, err := migrations.MakeRoles(ctx, address, rolePrefix); err != nil {
		return err
	}
	return execute(ctx, address, loginsSQL())
}

// loginsSQL returns statements that create a login for each set of roles. The logins may create tables in the schema
// public, and use the tables that other logins or the owner create.
func loginsSQL() string {
	script := "grant all on schema public to public;" + share("")
	for set := 1; set < 1<<len(migrations.Roles()); set++ {
		var roles, groups []string
		for i, role := range migrations.Roles() {
			if set&(1<<i) != 0 {
				roles = append(roles, role)
				groups = append(groups, migrations.RoleName(rolePrefix, role))
			}
		}
		login, err := loginName(roles)
		if err != nil {
			panic(err) // it depends on no input
		}
		if len(roles) > 1 {
			script += fmt.Sprintf("do $$ begin create role %s in role %s;"+
				"exception when duplicate_object or unique_violation then null; end $$;",
				login, strings.Join(groups, ", "))
		}
		script += fmt.Sprintf("alter role %s login password '%s';", login, rolePassword) + share("for role "+login)
	}
	return script
}

// share returns statements that let all logins use the tables and sequences of a role.
func share(of string) string {
	return "alter default privileges " + of + " in schema public grant all on tables to public;" +
		"alter default privileges " + of + " in schema public grant all on sequences to public;"
}

// HoldAdvisoryLocks holds session-level advisory locks on the hashes of texts until the test ends, as any role that may
// connect can.
func HoldAdvisoryLocks(t testing.TB, like *pgxpool.Pool, texts ...string) {
	t.Helper()
	conn, err := As(t, like, "reader").Acquire(t.Context())
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	t.Cleanup(func() {
		_ = conn.Conn().Close(context.WithoutCancel(t.Context())) // the locks end with the connection
		conn.Release()
	})
	const hold = "select pg_advisory_lock(hashtextextended(l, 0)) from unnest($1::text[]) l"
	if _, err := conn.Exec(t.Context(), hold, texts); err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
}

// AllowSchemas grants the login of a pool CREATE on its database. Programs with projections of their own need it.
func AllowSchemas(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	user := pgx.Identifier{db.Config().ConnConfig.User}.Sanitize()
	database := pgx.Identifier{db.Config().ConnConfig.Database}.Sanitize()
	ExecAsOwner(t, db, "grant create on database "+database+" to "+user)
}
