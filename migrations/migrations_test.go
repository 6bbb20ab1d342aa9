package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

// emptyDatabase returns the address of a new database with this encoding and no objects.
func emptyDatabase(t *testing.T, encoding string) string {
	t.Helper()
	migrated, err := url.Parse(ledgertest.URL(t, ledgertest.Owner))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Trim(migrated.Path, "/") + "_empty"
	create := fmt.Sprintf("create database %s encoding '%s' locale 'C' template template0", name, encoding)
	execute(t, migrated.String(), create)
	t.Cleanup(func() { execute(t, migrated.String(), "drop database "+name+" with (force)") })
	empty := *migrated
	empty.Path = "/" + name
	return empty.String()
}

// execute executes a script as psql does: without parameters, on a connection of its own.
func execute(t *testing.T, address, script string) {
	t.Helper()
	ctx := context.Background() // that of t has ended when the cleanup runs
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx) // the script's own error counts
	if err := conn.PgConn().Exec(ctx, script).Close(); err != nil {
		t.Fatalf("%.200s: %v", script, err)
	}
}

func TestUpListCheck(t *testing.T) {
	t.Parallel()
	address := emptyDatabase(t, "UTF8")
	before := listMigrations(t, address)
	want := numberedMigrations(t)
	if diff := difference.Of(want, before); diff != "" {
		t.Errorf("before Up (-want +got):\n%s", diff)
	}
	wantNotMigrated(t, migrations.Check(t.Context(), address), want[0].Name)
	if got := dump(t, address); strings.Contains(got, "taskledger") {
		t.Errorf("List or Check created objects:\n%s", got)
	}

	if err := migrations.Up(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	after := listMigrations(t, address)
	for i := range want {
		want[i].Applied = true
		if after[i].AppliedAt.IsZero() {
			t.Errorf("%s has no time of application", want[i].Name)
		}
		want[i].AppliedAt = after[i].AppliedAt
	}
	if diff := difference.Of(want, after); diff != "" {
		t.Errorf("after Up (-want +got):\n%s", diff)
	}
	if err := migrations.Check(t.Context(), address); err != nil {
		t.Error(err)
	}

	if err := migrations.Up(t.Context(), address); err != nil {
		t.Errorf("second Up: %v", err)
	}
	if diff := difference.Of(after, listMigrations(t, address)); diff != "" {
		t.Errorf("the second Up changed the list (-before +after):\n%s", diff)
	}
}

// The address of a pool has parameters that are not the server's, and a role has settings that change the text
// of a time. Neither may stop a migration.
func TestUpWithTheAddressOfAPool(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(emptyDatabase(t, "UTF8"))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Trim(address.Path, "/")
	settings := []string{"datestyle = 'German, DMY'", "timezone = 'Asia/Kathmandu'", "client_encoding = LATIN1"}
	for _, setting := range settings {
		execute(t, address.String(), fmt.Sprintf("alter database %s set %s", name, setting))
	}
	query := address.Query()
	for parameter, value := range map[string]string{
		"pool_max_conns": "7", "pool_min_conns": "1", "pool_min_idle_conns": "1", "pool_max_conn_lifetime": "1h",
		"pool_max_conn_idle_time": "1m", "pool_health_check_period": "1m", "pool_max_conn_lifetime_jitter": "1m",
		"pool_ping_timeout": "1m", "default_query_exec_mode": "simple_protocol", "TimeZone": "Asia/Tokyo",
	} {
		query.Set(parameter, value)
	}
	address.RawQuery = query.Encode()
	before := time.Now().Add(-time.Minute)
	if err := migrations.Up(t.Context(), address.String()); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Check(t.Context(), address.String()); err != nil {
		t.Error(err)
	}
	for _, m := range listMigrations(t, address.String()) {
		if m.AppliedAt.Before(before) || m.AppliedAt.After(time.Now().Add(time.Minute)) {
			t.Errorf("%s was applied at %v", m.Name, m.AppliedAt)
		}
	}
}

// A database that the previous version migrated lacks the last migration.
func TestCheckNamesTheMissingMigration(t *testing.T) {
	t.Parallel()
	address := emptyDatabase(t, "UTF8")
	if err := migrations.Up(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	all := numberedMigrations(t)
	last := all[len(all)-1]
	execute(t, address, fmt.Sprintf("delete from taskledger.migration where version_id = %d", last.Version))
	wantNotMigrated(t, migrations.Check(t.Context(), address), last.Name)
}

func listMigrations(t *testing.T, address string) []migrations.Status {
	t.Helper()
	all, err := migrations.List(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// numberedMigrations returns the files of FS, none of them applied, and checks that their numbers have no
// gaps.
func numberedMigrations(t *testing.T) []migrations.Status {
	t.Helper()
	names, err := fs.Glob(migrations.FS, "*")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d migrations, %v", len(names), err)
	}
	var all []migrations.Status
	for i, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("%05d_", i+1)) {
			t.Errorf("migration %d is called %s", i+1, name)
		}
		all = append(all, migrations.Status{Version: int64(i + 1), Name: name})
	}
	return all
}

func wantNotMigrated(t *testing.T, err error, missing string) {
	t.Helper()
	if !errors.Is(err, ledger.ErrNotMigrated) {
		t.Fatalf("got error %v, want ErrNotMigrated", err)
	}
	for _, text := range []string{missing, "taskledger migrate up"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not contain %q", err, text)
		}
	}
}

// Up may run in several processes at once: one migrates, and the others wait.
func TestUpAtOnceIsSafe(t *testing.T) {
	t.Parallel()
	const rounds, processes = 8, 4
	want := schemaOf(t, ledgertest.URL(t, ledgertest.Owner))
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			address := emptyDatabase(t, "UTF8")
			errs := make([]error, processes)
			start := make(chan struct{})
			var group sync.WaitGroup
			for i := range processes {
				group.Go(func() {
					<-start
					errs[i] = migrations.Up(t.Context(), address)
				})
			}
			close(start)
			group.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			if err := migrations.Check(t.Context(), address); err != nil {
				t.Error(err)
			}
			if diff := difference.Of(want, schemaOf(t, address)); diff != "" {
				t.Errorf("schemas differ (-one process +several):\n%s", diff)
			}
		})
	}
}

func TestScriptMakesTheSameSchema(t *testing.T) {
	t.Parallel()
	script, err := migrations.SQL()
	if err != nil {
		t.Fatal(err)
	}
	address := emptyDatabase(t, "UTF8")
	execute(t, address, script)
	if err := migrations.Check(t.Context(), address); err != nil {
		t.Errorf("Check after the script: %v", err)
	}
	if err := migrations.Up(t.Context(), address); err != nil {
		t.Errorf("Up after the script: %v", err)
	}
	migrated := emptyDatabase(t, "UTF8")
	if err := migrations.Up(t.Context(), migrated); err != nil {
		t.Fatal(err)
	}
	all := []string{"--schema=taskledger", "--schema=taskledger_internal"} // the version table included
	if diff := difference.Of(dump(t, migrated, all...), dump(t, address, all...)); diff != "" {
		t.Errorf("schemas differ (-Up +script):\n%s", diff)
	}
}

func TestDroppingTheSchemasRemovesEveryTrace(t *testing.T) {
	t.Parallel()
	address := emptyDatabase(t, "UTF8")
	before := dump(t, address)
	if err := migrations.Up(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	execute(t, address, "drop schema taskledger, taskledger_internal cascade")
	if diff := difference.Of(before, dump(t, address)); diff != "" {
		t.Errorf("objects remain (-before +after):\n%s", diff)
	}
	if err := migrations.Up(t.Context(), address); err != nil {
		t.Errorf("Up after the drop: %v", err)
	}
	execute(t, address, "drop schema taskledger cascade") // without taskledger_internal
	err := migrations.Up(t.Context(), address)
	const cure = "drop schema taskledger_internal cascade"
	if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || !strings.Contains(pg.Hint, cure) {
		t.Errorf("Up after half the drop: %v, want the cure", err)
	}
}

// The migrations before the first release had other numbers and other contents.
func TestUnreleasedSchemaIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		applied int // migrations of the unreleased version
	}{
		{name: "complete", applied: 14},
		{name: "incomplete", applied: 3},
		{name: "empty", applied: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			address := emptyDatabase(t, "UTF8")
			execute(t, address, fmt.Sprintf(`
				create schema taskledger;
				create table taskledger.event (kind text, biz_id text, version integer);
				create table taskledger.schema_version (
				  id         integer primary key generated by default as identity,
				  version_id bigint not null,
				  is_applied boolean not null,
				  tstamp     timestamp not null default now());
				insert into taskledger.schema_version (version_id, is_applied)
				select v, true from generate_series(0, %d) v`, test.applied))
			before := dump(t, address)

			_, listErr := migrations.List(t.Context(), address)
			for call, err := range map[string]error{
				"Up":    migrations.Up(t.Context(), address),
				"Check": migrations.Check(t.Context(), address),
				"List":  listErr,
			} {
				if !errors.Is(err, migrations.ErrUnreleased) || errors.Is(err, ledger.ErrNotMigrated) {
					t.Errorf("%s: got error %v, want ErrUnreleased", call, err)
				}
			}
			if diff := difference.Of(before, dump(t, address)); diff != "" {
				t.Errorf("the refusal changed the schema (-before +after):\n%s", diff)
			}

			// The cure that the error names. A later attempt of the old command does no harm.
			execute(t, address, "drop schema if exists taskledger, taskledger_internal cascade")
			if err := migrations.Up(t.Context(), address); err != nil {
				t.Errorf("Up after the drop: %v", err)
			}
			execute(t, address, "create table taskledger.schema_version (version_id bigint)")
			if err := migrations.Up(t.Context(), address); err != nil {
				t.Errorf("Up beside a version table of the unreleased command: %v", err)
			}
		})
	}
}

func TestOtherEncodingsAreRefused(t *testing.T) {
	t.Parallel()
	err := migrations.Up(t.Context(), emptyDatabase(t, "SQL_ASCII"))
	var pg *pgconn.PgError
	if !errors.As(err, &pg) ||
		!strings.Contains(pg.Message, "encoding UTF8") || !strings.Contains(pg.Hint, "create database") {
		t.Fatalf("got error %v", err)
	}
	if !strings.Contains(err.Error(), "version:1") {
		t.Errorf("error %q does not name the migration", err)
	}
}

// A server that is too old is refused before anything is made: the first statement of the migrations asks for its
// version. The test raises the version that it asks for above that of the test's server.
func TestOldServersAreRefused(t *testing.T) {
	t.Parallel()
	text, err := migrations.FS.ReadFile("00001_ledger.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, first, _ := strings.Cut(string(text), "-- +goose StatementBegin\n")
	first, _, _ = strings.Cut(first, "-- +goose StatementEnd")
	const oldest = "150000"
	if strings.Count(first, oldest) != 1 {
		t.Fatalf("the first statement does not ask for the version: %s", first)
	}
	conn, err := pgx.Connect(t.Context(), emptyDatabase(t, "UTF8"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), first); err != nil {
		t.Error(err)
	}
	_, err = conn.Exec(t.Context(), strings.Replace(first, oldest, "9990000", 1))
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.Contains(pg.Message, "PostgreSQL 15 or later, this server is") ||
		!strings.Contains(pg.Hint, "upgrade") {
		t.Errorf("got error %v", err)
	}
}

// No statement changes an event, not even one of a superuser. Those that concern no row are refused too, except for the
// columns that an erasure removes: these are checked for each row.
func TestEventsAreAppendOnly(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	ledgertest.Enqueue(t, pool, ledgertest.Key(t, "kind/1"), "")
	const merge = `merge into taskledger.event e using (select 1) s on e.biz_id = '1' when matched then `
	for _, statement := range []string{
		`update taskledger.event set actor = 'me'`,
		`update taskledger.event set kind = 'other' where false`,
		`delete from taskledger.event`,
		`delete from taskledger.event where false`,
		`truncate taskledger.event`,
		`truncate taskledger.event restart identity cascade`,
		merge + `update set actor = 'me'`,
		merge + `delete`,
		`insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		 values (1, 0, 0, 'enqueued', 'kind', '1')
		 on conflict (kind, biz_id, version) do update set actor = 'me'`,
		`with gone as (delete from taskledger.event returning 1) select from gone`,
	} {
		_, err := pool.Exec(t.Context(), statement)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "23001" || !strings.Contains(pg.Message, "append-only") || pg.Hint == "" {
			t.Errorf("%s: got error %v", statement, err)
		}
	}
	ledgertest.Check(t, pool)
	if _, err := pool.Exec(t.Context(), `select from taskledger.event for update`); err != nil {
		t.Errorf("locking events: %v", err)
	}
}
