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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

// emptyDatabase returns the address of a database in which nothing was ever made, with this
// encoding.
func emptyDatabase(t *testing.T, encoding string) string {
	t.Helper()
	beside, err := url.Parse(ledgertest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Trim(beside.Path, "/") + "_empty"
	execute(t, beside.String(), fmt.Sprintf("create database %s encoding '%s' locale 'C' template template0", name, encoding))
	t.Cleanup(func() { execute(t, beside.String(), "drop database "+name+" with (force)") })
	empty := *beside
	empty.Path = "/" + name
	return empty.String()
}

// execute executes a script as psql does: without parameters, on a connection of its own.
func execute(t *testing.T, address, script string) {
	t.Helper()
	if err := executing(address, script); err != nil {
		t.Fatalf("%.200s: %v", script, err)
	}
}

func executing(address, script string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.PgConn().Exec(ctx, script).Close()
}

func TestUpListCheck(t *testing.T) {
	t.Parallel()
	address := emptyDatabase(t, "UTF8")
	before, err := migrations.List(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(migrations.FS, "*")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d migrations, %v", len(names), err)
	}
	var want []migrations.Status
	for i, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("%05d_", i+1)) {
			t.Errorf("migration %d is called %s", i+1, name)
		}
		want = append(want, migrations.Status{Version: int64(i + 1), Name: name})
	}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	wantNotMigrated(t, migrations.Check(t.Context(), address), names[0])
	if got := dump(t, address); strings.Contains(got, "taskledger") {
		t.Errorf("looking has made something:\n%s", got)
	}

	if err := migrations.Up(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	after, err := migrations.List(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i].Applied = true
		if after[i].AppliedAt.IsZero() {
			t.Errorf("%s was applied at no time", names[i])
		}
	}
	if diff := cmp.Diff(want, after, cmpopts.IgnoreFields(migrations.Status{}, "AppliedAt")); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if err := migrations.Check(t.Context(), address); err != nil {
		t.Error(err)
	}

	if err := migrations.Up(t.Context(), address); err != nil {
		t.Errorf("the second time: %v", err)
	}
	again, err := migrations.List(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, again); diff != "" {
		t.Errorf("the second time changed (-before +after):\n%s", diff)
	}

	// A database as the version before this one left it.
	last := len(names)
	execute(t, address, fmt.Sprintf("delete from taskledger.schema_version where version_id = %d", last))
	wantNotMigrated(t, migrations.Check(t.Context(), address), names[last-1])
}

func wantNotMigrated(t *testing.T, err error, missing string) {
	t.Helper()
	if !errors.Is(err, ledger.ErrNotMigrated) || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "taskledger migrate up") {
		t.Errorf("got %v, want that %s is missing and what to do", err, missing)
	}
}

// Processes that start together may all migrate: one does it, the others wait.
func TestUpAtOnceIsSafe(t *testing.T) {
	t.Parallel()
	const rounds, processes = 8, 4
	want := schemaOf(t, ledgertest.URL(t))
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			address := emptyDatabase(t, "UTF8")
			errs := make([]error, processes)
			begin := make(chan struct{})
			var group sync.WaitGroup
			for i := range processes {
				group.Go(func() {
					<-begin
					errs[i] = migrations.Up(t.Context(), address)
				})
			}
			close(begin)
			group.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			if err := migrations.Check(t.Context(), address); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, schemaOf(t, address)); diff != "" {
				t.Errorf("(-migrated alone +migrated at once):\n%s", diff)
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
		t.Errorf("after the script: %v", err)
	}
	if err := migrations.Up(t.Context(), address); err != nil {
		t.Errorf("up after the script: %v", err)
	}
	migrated := emptyDatabase(t, "UTF8")
	if err := migrations.Up(t.Context(), migrated); err != nil {
		t.Fatal(err)
	}
	const all = "--schema=taskledger" // goose's table included
	if diff := cmp.Diff(dump(t, migrated, all), dump(t, address, all)); diff != "" {
		t.Errorf("(-migrated +by script):\n%s", diff)
	}
}

func TestDroppingTheSchemaRemovesEveryTrace(t *testing.T) {
	t.Parallel()
	address := emptyDatabase(t, "UTF8")
	before := dump(t, address)
	if err := migrations.Up(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	execute(t, address, "drop schema taskledger cascade")
	if diff := cmp.Diff(before, dump(t, address)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if err := migrations.Up(t.Context(), address); err != nil {
		t.Errorf("from the beginning: %v", err)
	}
}

func TestOtherEncodingsAreRefused(t *testing.T) {
	t.Parallel()
	err := migrations.Up(t.Context(), emptyDatabase(t, "SQL_ASCII"))
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.Contains(pg.Message, "encoding UTF8") || !strings.Contains(pg.Hint, "create database") {
		t.Errorf("got %v", err)
	}
	if err != nil && !strings.Contains(err.Error(), "version:1") {
		t.Errorf("%v does not name the migration", err)
	}
}

// Nobody changes an event, whatever the rights and however few rows it would concern.
func TestEventsAreAppendOnly(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ledgertest.Enqueue(t, pool, ledgertest.Key(t, "kind/1"), "")
	const merge = `merge into taskledger.event e using (select 1) s on e.biz_id = '1' when matched then `
	for _, statement := range []string{
		`update taskledger.event set actor = 'me'`,
		`update taskledger.event set actor = 'me' where false`,
		`delete from taskledger.event`,
		`delete from taskledger.event where false`,
		`truncate taskledger.event`,
		`truncate taskledger.event restart identity cascade`,
		merge + `update set actor = 'me'`,
		merge + `delete`,
		`insert into taskledger.event (version, attempt, shard, type, kind, biz_id) values (1, 0, 0, 'enqueued', 'kind', '1')
		 on conflict (kind, biz_id, version) do update set actor = 'me'`,
		`with gone as (delete from taskledger.event returning 1) select from gone`,
	} {
		_, err := pool.Exec(t.Context(), statement)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "23001" || !strings.Contains(pg.Message, "append-only") || pg.Hint == "" {
			t.Errorf("%s: %v", statement, err)
		}
	}
	ledgertest.Check(t, pool)
	if _, err := pool.Exec(t.Context(), `select from taskledger.event for update`); err != nil {
		t.Errorf("locking is not changing: %v", err)
	}
}
