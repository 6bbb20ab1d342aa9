package main

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// execute executes SQL at an address.
func execute(t *testing.T, address, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.PgConn().Exec(t.Context(), sql).Close(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// addressAs returns the address of a database for a login whose password is its name.
func addressAs(t *testing.T, server *pgserver.Server, database, login string) string {
	t.Helper()
	u, err := url.Parse(server.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(login, login)
	return u.String()
}

// An owner without CREATEROLE gets the two ways to make the roles, and both work. A login without the role of a
// command gets the name of that role.
func TestMigrateRolesWithoutCREATEROLE(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	superuser := server.URL("postgres")
	execute(t, superuser, "create role keeper login password 'keeper'; "+
		"create role admin login createrole password 'admin'; create role member login createrole password 'member'; "+
		"grant keeper to member; create role clerk login password 'clerk'")
	p := program{t: t}
	at := func(database, login string) map[string]string {
		return map[string]string{envDatabaseURL: addressAs(t, server, database, login)}
	}
	succeed := func(env map[string]string, args ...string) {
		t.Helper()
		if code, _, errs := p.run(env, args...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, errs)
		}
	}
	fail := func(env map[string]string, want string, args ...string) (errs string) {
		t.Helper()
		code, _, errs := p.run(env, args...)
		if code != exitUnavailable || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", args, code, exitUnavailable, want, errs)
		}
		return errs
	}
	for _, database := range []string{"shop", "Depot"} {
		execute(t, superuser, "create database "+pgx.Identifier{database}.Sanitize()+" owner keeper")
		fail(at(database, "clerk"), "as a login with CREATE on the database", "migrate", "up")
		succeed(at(database, "keeper"), "migrate", "up")
	}

	// An administrator creates the roles that the hint lists, and the owner runs the command again.
	mails := []string{"migrate", "roles", "--worker", "mails=mail.*"}
	errs := fail(at("shop", "keeper"), "permission denied to create role", mails...)
	statements := regexp.MustCompile(`execute: (.*;) then run taskledger migrate roles again`).FindStringSubmatch(errs)
	if statements == nil || strings.Count(statements[1], "create role") != 9 {
		t.Fatalf("not nine statements: %s", errs)
	}
	execute(t, addressAs(t, server, "shop", "admin"), statements[1])
	succeed(at("shop", "keeper"), mails...)

	// An administrator that is a member of the owner runs the command; another one may not.
	fail(at("Depot", "keeper"), `create role "Depot_api"; then`, "migrate", "roles")
	fail(at("Depot", "admin"), "hint: connect as the owner of the schema taskledger", "migrate", "roles")
	succeed(at("Depot", "member"), "migrate", "roles")

	for _, database := range []string{"shop", "Depot"} {
		role := func(name string) string { return pgx.Identifier{database + "_" + name}.Sanitize() }
		fail(at(database, "clerk"), "the role "+database+"_reader can do this", "show", "kinds")
		execute(t, superuser, "grant "+role("reader")+" to clerk")
		succeed(at(database, "clerk"), "show", "kinds")
		fail(at(database, "clerk"), "the role "+database+"_operator can do this", "pause", "kind", "a")
		fail(at(database, "clerk"), "the role "+database+"_producer can do this", "enqueue", "a", "1")
		execute(t, superuser, "grant "+role("operator")+", "+role("producer")+" to clerk")
		succeed(at(database, "clerk"), "pause", "kind", "a")
		succeed(at(database, "clerk"), "enqueue", "a", "1")
	}
	execute(t, superuser, "create database closed")
	execute(t, superuser, "revoke connect on database closed from public")
	fail(at("closed", "clerk"), "hint: grant the login CONNECT on the database", "show", "kinds")
}

// A migration that refuses the database has its cure as the hint of the command.
func TestRefusedMigrationHasACure(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(emptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	u.Path += "_ascii"
	name := pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()
	const create = " encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0"
	if _, err := conn.Exec(t.Context(), "create database "+name+create); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = conn.Exec(context.WithoutCancel(t.Context()), "drop database "+name+" with (force)") }()
	p := program{t, map[string]string{envDatabaseURL: u.String()}}
	code, _, errs := p.run(nil, "migrate", "up")
	if code != exitFailed || !strings.Contains(errs, "encoding UTF8") ||
		!strings.Contains(errs, "hint: create the database with") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
