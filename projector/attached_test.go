package projector_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// attached returns what others have attached to the tables of a schema, sorted.
func attached(t *testing.T, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		with t as (
		  select c.* from pg_class c
		   where c.relnamespace = to_regnamespace($1) and c.relkind = 'r'
		     and c.relname in ('campaign', 'coupon', 'task')
		)
		select t.relname || ' security ' || t.relrowsecurity || ' forced ' || t.relforcerowsecurity || ' replica '
		       || t.relreplident::text from t
		 union all
		select t.relname || ' policy ' || p.polname || ' ' || p.polcmd::text || p.polpermissive
		       || (select string_agg(r::regrole::text, ',' order by r::regrole::text) from unnest(p.polroles) r)
		       || coalesce(pg_get_expr(p.polqual, p.polrelid), '-')
		       || coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '-')
		  from t join pg_policy p on p.polrelid = t.oid
		 union all
		select g.tgenabled::text || ' ' || pg_get_triggerdef(g.oid)
		  from t join pg_trigger g on g.tgrelid = t.oid and not g.tgisinternal
		 union all
		select w.ev_enabled::text || ' ' || pg_get_ruledef(w.oid) from t join pg_rewrite w on w.ev_class = t.oid
		 union all
		select t.relname || ' in ' || p.pubname || coalesce(' columns ' || (to_jsonb(r) ->> 'prattrs'), '')
		       || coalesce((select to_jsonb(v) ->> 'rowfilter' from pg_publication_tables v
		                     where v.pubname = p.pubname and v.tablename = t.relname), '')
		  from t join pg_publication_rel r on r.prrelid = t.oid join pg_publication p on p.oid = r.prpubid
		 union all
		select t.relname || ' ' || a.grantee::regrole || ' ' || a.privilege_type || ' ' || a.is_grantable
		  from t cross join lateral aclexplode(t.relacl) a
		 union all
		select t.relname || '.' || c.attname || ' ' || a.grantee::regrole || ' ' || a.privilege_type
		  from t join pg_attribute c on c.attrelid = t.oid cross join lateral aclexplode(c.attacl) a`, schema)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// A rebuild keeps what others have attached to the tables, and takes back no revocation. That of a new version keeps it
// beside what the new DDL makes.
func TestRebuildKeepsWhatOthersAttached(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	p := coupons()
	p.DDL += `; grant select on campaign to public; alter table campaign enable row level security;
		create policy ours on campaign for select using (true); create policy everybody on campaign using (true)`
	register(t, pool, p)
	ledgertest.As(t, pool, "reader")
	ledgertest.ExecAsOwner(t, pool, `
		create function public.note() returns trigger language plpgsql as $$ begin return new; end $$;
		create table public.noted (name text)`)
	ledgertest.ExecAsOwner(t, pool, `
		revoke select on coupons.campaign from public;
		grant select on coupons.campaign to taskledger_test_reader with grant option;
		grant update (sent) on coupons.campaign to taskledger_test_reader;
		drop policy everybody on coupons.campaign;
		alter table coupons.campaign force row level security;
		create policy theirs on coupons.campaign as restrictive for update to taskledger_test_reader
		  using (sent > 0) with check (name in (select n.name from public.noted n));
		alter table coupons.coupon enable row level security;
		create policy all_rows on coupons.coupon using (true);
		create trigger noted after insert on coupons.coupon for each row when (new.last > 1)
		  execute function public.note();
		alter table coupons.coupon disable trigger noted;
		create rule noted as on delete to coupons.campaign where old.sent < 0 do also
		  insert into public.noted values (old.name);
		alter table coupons.campaign enable replica rule noted;
		alter table coupons.coupon replica identity full;
		create publication whole for table coupons.coupon;
		create policy theirs on taskledger.task using (true);
		create trigger noted before update on taskledger.task for each row when (new.version < 0)
		  execute function public.note()`)
	if major(t, pool) >= 15 {
		ledgertest.ExecAsOwner(t, pool, `create publication part for table coupons.campaign (name, sent)
			where (name <> 'secret')`)
	}
	before, tasks := attached(t, pool, "coupons"), attached(t, pool, "taskledger")
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	if err := projector.Rebuild(t.Context(), owner, p, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, attached(t, pool, "coupons")); diff != "" {
		t.Errorf("after the rebuild: -before +after\n%s", diff)
	}
	if err := projector.RebuildTasks(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tasks, attached(t, pool, "taskledger")); diff != "" {
		t.Errorf("after the rebuild of tasks: -before +after\n%s", diff)
	}
	p.Version, p.DDL = 2, strings.Replace(p.DDL, "ours on campaign for select using (true)",
		"ours on campaign for select using (sent >= 0)", 1)
	if err := projector.Rebuild(t.Context(), owner, p, nil); err != nil {
		t.Fatal(err)
	}
	after := attached(t, pool, "coupons")
	var kept []string
	for _, line := range after {
		if !strings.Contains(line, "policy everybody") && !strings.Contains(line, "policy ours") {
			kept = append(kept, line)
		}
	}
	before = slices.DeleteFunc(before, func(line string) bool { return strings.Contains(line, "policy ours") })
	if diff := cmp.Diff(before, kept); diff != "" {
		t.Errorf("after the new version: -before +after\n%s", diff)
	}
	if !slices.ContainsFunc(after, func(line string) bool {
		return strings.Contains(line, "policy ours") && strings.Contains(line, "(sent >= 0)")
	}) {
		t.Errorf("the policy of the new DDL is missing:\n%s", strings.Join(after, "\n"))
	}
}

// The owner replaces the tables of the built-in projection and no others, whatever the registry has, and uses no schema
// that another login has made.
func TestRelayCannotChooseWhatTheOwnerReplaces(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	enqueueCoupons(t, pool, "spring", 0, 5)
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`update taskledger.projection set tables = '{event,task}' where name = 'tasks'`)
	if err := projector.RebuildTasks(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	project(t, pool)
	check(t, pool)
	if r, err := projector.ReadProjection(t.Context(), pool, projector.TasksName); err != nil || len(r.Tables) != 5 {
		t.Errorf("registered: %+v, %v", r, err)
	}
	var tables *projector.TablesError
	refused := func(what string, err error) {
		t.Helper()
		if !errors.As(err, &tables) || !strings.Contains(err.Error(), "belongs to "+pool.Config().ConnConfig.User) {
			t.Errorf("%s: %v", what, err)
		}
	}
	exec(`create schema taskledger_build_tasks; create table taskledger_build_tasks.event (n integer)`)
	refused("rebuild in a schema of the relay", projector.RebuildTasks(t.Context(), owner, nil))
	exec(`drop schema taskledger_build_tasks cascade; create schema taskledger_build_tasks_old`)
	if err := projector.RebuildTasks(t.Context(), owner, nil); !errors.As(err, &tables) ||
		!strings.Contains(err.Error(), "taskledger_build_tasks_old") {
		t.Errorf("beside a schema of the old tables: %v", err)
	}
	exec(`drop schema taskledger_build_tasks_old`)

	// A schema of users is not taken for that of a projection because the registry has its name.
	exec(`create schema coupons; create table coupons.precious (n integer);
		insert into taskledger.projection (name, version, shape, tables, parks)
		values ('coupons', 0, '', '{precious}', false)`)
	p := coupons()
	if err := projector.Rebuild(t.Context(), pool, p, nil); !errors.As(err, &tables) ||
		!strings.Contains(err.Error(), "was not made for it") {
		t.Errorf("rebuild in a schema of users: %v", err)
	}
	exec(`select from coupons.precious`)
	check(t, pool)
}

// Roles read the registered projections, their lag and their parked events without a right on their schemas.
func TestRolesNeedNoRightOnTheSchema(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	registerCoupons(1)(t, pool)
	for _, role := range []string{"relay", "operator", "reader", "archiver"} {
		db := ledgertest.As(t, pool, role)
		if _, err := db.Exec(t.Context(), "select from coupons.campaign"); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s reads the table: %v", role, err)
		}
		if all, err := projector.ReadProjections(t.Context(), db); err != nil || len(all) != 2 {
			t.Errorf("%s: %d projections, %v", role, len(all), err)
		}
		if _, err := projector.ReadLagOf(t.Context(), db, "coupons"); err != nil {
			t.Errorf("%s: %v", role, err)
		}
		if _, err := projector.ReadProjectionParked(t.Context(), db, "coupons", projector.EventName{}, 10); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
}

// An operator changes what a projection applies with a record of it only, also in SQL.
func TestOperatorsActsAreOnRecord(t *testing.T) {
	t.Parallel()
	pool := ownPool(t)
	registerCoupons(1)(t, pool)
	operator := ledgertest.As(t, pool, "operator")
	for _, sql := range []string{
		"update taskledger.projection_parked set state = 'retry'",
		"update taskledger.projection set wanted = 'rebuild'",
		`insert into taskledger.projection_parked (projection, kind, biz_id, version, position, state, error, failures)
		 values ('coupons', 'a', 'b', 1, 1, 'skipped', '', 1)`,
		"select taskledger_internal.retry_projection('coupons', 'a', 'b')",
		"select taskledger_internal.skip_projection('coupons', 'a', 'b')",
		"select taskledger_internal.ask_projection('coupons', 'rebuild')",
	} {
		if _, err := operator.Exec(t.Context(), sql); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if err := projector.Ask(t.Context(), operator, "coupons", projector.WorkVerify, projector.Act{}); err != nil {
		t.Error(err)
	}
	if err := projector.Ask(t.Context(), operator, "coupons", projector.WorkRebuild, projector.Act{}); err != nil {
		t.Error(err)
	}
}

func major(t *testing.T, pool *pgxpool.Pool) (version int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `select current_setting('server_version_num')::integer / 10000`).Scan(&version)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// register runs a projection until it is registered.
func register(t *testing.T, pool *pgxpool.Pool, p projector.Projection) {
	t.Helper()
	stop := start(t, quick(pool, p))
	defer stop()
	await(t, "the projection is registered", func() bool {
		r, err := projector.ReadProjection(context.WithoutCancel(t.Context()), pool, p.Name)
		return err == nil && r.Version == p.Version
	})
}
