package ledgertest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/migrations"
)

// The roles of the databases of tests, which all of them share.
const (
	rolePrefix   = "taskledger_test"
	rolePassword = "taskledger_test"
)

// App is the role of [As] that has the rights of a producer and of a worker, as most programs of users need.
const App = "app"

// makeRoles makes the roles in a database, so that they can log in, and [App].
func makeRoles(ctx context.Context, address string) error {
	names, err := migrations.MakeRoles(ctx, address, rolePrefix)
	if err != nil {
		return err
	}
	app := migrations.RoleName(rolePrefix, App)
	script := fmt.Sprintf("do $$ begin if to_regrole('%[1]s') is null then create role %[1]s; end if; end $$;"+
		"grant %[2]s, %[3]s to %[1]s;",
		app, migrations.RoleName(rolePrefix, "producer"), migrations.RoleName(rolePrefix, "worker"))
	for _, name := range append(slices.Clone(names), app) {
		script += fmt.Sprintf("alter role %s login password '%s';", name, rolePassword)
	}
	return execute(ctx, address, script)
}

// As returns a pool of connections to the database of another pool, as a role of the ledger: [App], or a name of
// migrations.Roles. The role may create tables in the schema public, and use those that are there or will be.
// The pool is closed after the test.
func As(t testing.TB, owner *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	config := owner.Config()
	name := pgx.Identifier{migrations.RoleName(rolePrefix, role)}.Sanitize()
	for _, statement := range []string{
		"grant create, usage on schema public to " + name,
		"grant all on all tables in schema public to " + name,
		"grant all on all sequences in schema public to " + name,
		"alter default privileges in schema public grant all on tables to " + name,
		"alter default privileges in schema public grant all on sequences to " + name,
	} {
		if _, err := owner.Exec(ctx, statement); err != nil {
			t.Fatalf("ledgertest: %s: %v", statement, err)
		}
	}
	config.ConnConfig.User, config.ConnConfig.Password = migrations.RoleName(rolePrefix, role), rolePassword
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}
