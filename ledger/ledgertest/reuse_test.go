package ledgertest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// place is a database and a server process of it.
type place struct{ database, process string }

// leave runs change in a test of its own, on a database of the server of this test, and returns where it ran.
func leave(t *testing.T, name string, change func(*testing.T, *pgxpool.Pool)) (at place) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		pool := ledgertest.Pool(t, ledgertest.Owner)
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const where = "select current_database(), pg_backend_pid()::text || ' of ' || pg_postmaster_start_time()"
		if err := conn.QueryRow(t.Context(), where).Scan(&at.database, &at.process); err != nil {
			t.Fatal(err)
		}
		conn.Release()
		change(t, pool)
	})
	return at
}

// exec returns a change by SQL.
func exec(statements ...string) func(*testing.T, *pgxpool.Pool) {
	return func(t *testing.T, pool *pgxpool.Pool) {
		t.Helper()
		for _, sql := range statements {
			if _, err := pool.Exec(t.Context(), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
}

// Each case continues in the database and in the server process of the one before, and finds nothing of it.
func TestDatabaseIsReused(t *testing.T) {
	ledgertest.UseOwnServer(t)
	var first place
	var pristine string
	for _, test := range []struct {
		name   string
		change func(*testing.T, *pgxpool.Pool)
	}{
		{"nothing", func(*testing.T, *pgxpool.Pool) {}},
		{"tasks", func(t *testing.T, pool *pgxpool.Pool) {
			answer := ledgertest.Enqueue(t, pool, ledgertest.Key(t, "k/1"), `{"a": 1}`)
			ledgertest.Append(t, pool, ledgertest.Key(t, "k/2"), ledger.EventSucceeded)
			if answer.Position != 1 {
				t.Errorf("the first event has position %d", answer.Position)
			}
		}},
		{"tables", exec(
			"create table effects (id integer primary key, text varchar)", "create view seen as select * from effects",
			"create type color as enum ('red')", "create function f() returns integer language sql as 'select 1'",
			"create schema other", "create table other.rows (id integer references effects)")},
		{"session", exec(
			"set statement_timeout = '1 s'", "set taskledger_test.name = 'x'", "prepare mine as select 1",
			"listen mine", "create temp table mine (id integer)", "select pg_advisory_lock(17)",
			"set session authorization pg_monitor")},
		{"nothing again", func(*testing.T, *pgxpool.Pool) {}},
	} {
		at := leave(t, test.name, func(t *testing.T, pool *pgxpool.Pool) {
			if now := contents(t, pool); pristine == "" {
				pristine = now
			} else if now != pristine {
				t.Errorf("the database has\n%s\nand had\n%s", now, pristine)
			}
			test.change(t, pool)
		})
		if first.database == "" {
			first = at
		}
		if at != first {
			t.Errorf("%s ran in %v, the first one in %v", test.name, at, first)
		}
	}
}

// contents returns what a session finds in a database.
func contents(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	const sql = `
		select concat_ws(E'\n',
			(select string_agg(c.relname || ' ' || coalesce((xpath('/row/n/text()', query_to_xml(format(
			          'select count(*) || md5(coalesce(string_agg(r::text, '','' order by r::text), '''')) as n
			             from %I.%I r', n.nspname, c.relname), false, true, '')))[1]::text, ''), ', '
			                   order by c.relname)
			   from pg_class c join pg_namespace n on n.oid = c.relnamespace
			  where c.relkind = 'r' and n.nspname in ('taskledger', 'public')),
			(select string_agg(n.nspname, ', ' order by n.nspname) from pg_namespace n where n.nspname !~ '^pg_t'),
			(select string_agg(t.typname, ', ' order by t.typname) from pg_type t
			  where t.typnamespace = 'public'::regnamespace),
			(select string_agg(p.proname, ', ' order by p.proname) from pg_proc p
			  where p.pronamespace = 'public'::regnamespace),
			(select string_agg(s.name || '=' || s.setting, ', ' order by s.name) from pg_settings s
			  where s.source not in ('default', 'override')),
			nullif(current_setting('taskledger_test.name', true), ''), session_user, to_regclass('pg_temp.mine')::text,
			(select string_agg(p.name, ', ') from pg_prepared_statements p where p.name !~ '^stmt'),
			(select string_agg(c, ', ') from pg_listening_channels() c),
			(select count(*)::text from pg_locks l where l.locktype = 'advisory' and l.database =
			  (select d.oid from pg_database d where d.datname = current_database())))`
	var text string
	if err := pool.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// A test that could notice a change of an earlier one gets another database.
func TestChangedDatabaseIsNotReused(t *testing.T) {
	ledgertest.UseOwnServer(t)
	var open *pgx.Conn
	before := leave(t, "nothing", func(*testing.T, *pgxpool.Pool) {})
	for _, test := range []struct {
		name   string
		change func(*testing.T, *pgxpool.Pool)
	}{
		{"function", exec("create or replace function taskledger_internal.lease_kinds(detail json) returns text[] " +
			"language sql as $$select '{}'::text[]$$")},
		{"trigger", exec("alter table taskledger.event disable trigger user")},
		{"policy", exec("alter table taskledger.event no force row level security",
			"alter table taskledger.event disable row level security")},
		{"grant", exec("grant delete on taskledger.event to public")},
		{"setting", func(t *testing.T, pool *pgxpool.Pool) {
			exec("alter database "+pool.Config().ConnConfig.Database+" set work_mem = '1MB'")(t, pool)
		}},
		{"column", exec("alter table taskledger.task add column x integer",
			"alter table taskledger.task drop column x")},
		{"statistics", exec("insert into taskledger.pause (kind, actor, reason) values ('k', 'a', '')",
			"analyze taskledger.pause")},
		{"a row of the migrations", exec("update taskledger.floor set position = 5")},
		{"the same row", exec("update taskledger.floor set position = 0")},
		{"no row", exec("delete from taskledger.mutex")},
		{"session", func(t *testing.T, pool *pgxpool.Pool) { // stays open
			var err error
			if open, err = pgx.Connect(t.Context(), pool.Config().ConnString()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		at := leave(t, test.name, test.change)
		if at.database != before.database {
			t.Errorf("%s ran in %s, the test before in %s", test.name, at.database, before.database)
		}
		after := leave(t, "after "+test.name, func(*testing.T, *pgxpool.Pool) {})
		if after.database == at.database {
			t.Errorf("%s: the next test ran in the same database", test.name)
		}
		before = after
	}
	_ = open.Close(t.Context())
}

// A server process is not used again while a statement runs in it, in a transaction, or if its end was lost.
func TestUncleanConnectionsAreNotReused(t *testing.T) {
	ledgertest.UseOwnServer(t)
	for _, test := range []struct {
		name   string
		change func(context.Context, *pgx.Conn) error
	}{
		{"transaction", func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "begin")
			return err
		}},
		{"rows", func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Query(ctx, "select generate_series(1, 1000000)") //nolint:sqlclosecheck // stays open
			return err
		}},
		{"killed", func(ctx context.Context, conn *pgx.Conn) error {
			_, _ = conn.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return nil
		}},
	} {
		var process uint32
		at := leave(t, test.name, func(t *testing.T, pool *pgxpool.Pool) {
			process = closeUnclean(t, pool, test.change)
		})
		next := leave(t, "after "+test.name, func(t *testing.T, pool *pgxpool.Pool) {
			for range 4 {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
				if conn.Conn().PgConn().PID() == process {
					t.Errorf("%s: the process is used again", test.name)
				}
				if _, err := conn.Exec(t.Context(), "select 1"); err != nil {
					t.Error(err)
				}
			}
		})
		if at.database != next.database {
			t.Errorf("%s: the next test ran in another database", test.name)
		}
	}
}

// closeUnclean closes a connection as a pool does when its test has ended, and returns its process.
func closeUnclean(t *testing.T, pool *pgxpool.Pool, change func(context.Context, *pgx.Conn) error) uint32 {
	t.Helper()
	config := pool.Config().ConnConfig
	ledgertest.KeepConnections(t, config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	process := conn.PgConn().PID()
	if err := change(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	return process
}
