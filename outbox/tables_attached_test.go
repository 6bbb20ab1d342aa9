package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
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
	pool := tablesPool(t)
	p := coupons()
	p.Tables.DDL += `; grant select on campaign to public; alter table campaign enable row level security;
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
		create publication whole for table coupons.coupon`)
	if major(t, pool) >= 15 {
		ledgertest.ExecAsOwner(t, pool, `create publication part for table coupons.campaign (name, sent)
			where (name <> 'secret')`)
	}
	before := attached(t, pool, "coupons")
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	if err := outbox.RebuildTables(t.Context(), on(owner, p), nil); err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(before, attached(t, pool, "coupons")); diff != "" {
		t.Errorf("after the rebuild: -before +after\n%s", diff)
	}
	p.Tables.Version, p.Tables.DDL = 2, strings.Replace(p.Tables.DDL, "ours on campaign for select using (true)",
		"ours on campaign for select using (sent >= 0)", 1)
	if err := outbox.RebuildTables(t.Context(), on(owner, p), nil); err != nil {
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
	if diff := difference.Of(before, kept); diff != "" {
		t.Errorf("after the new version: -before +after\n%s", diff)
	}
	if !slices.ContainsFunc(after, func(line string) bool {
		return strings.Contains(line, "policy ours") && strings.Contains(line, "(sent >= 0)")
	}) {
		t.Errorf("the policy of the new DDL is missing:\n%s", strings.Join(after, "\n"))
	}
}

// A schema of users is not taken for that of a subscriber because the registry has its name.
func TestRebuildReplacesNoSchemaOfUsers(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`select taskledger.seek_feed('coupons', 0)`)
	exec(`create schema coupons; create table coupons.precious (n integer);
		insert into taskledger.subscriber_state (reader, version, shape, tables, parks)
		values ('subscriber/coupons', 0, '', '{precious}', false)`)
	var tables *outbox.TablesError
	if err := outbox.RebuildTables(t.Context(), on(pool, coupons()), nil); !errors.As(err, &tables) ||
		!strings.Contains(err.Error(), "was not made for it") {
		t.Errorf("rebuild in a schema of users: %v", err)
	}
	exec(`select from coupons.precious`)
}

// Roles read the states of subscribers and their parked events without a right on their schemas.
func TestRolesNeedNoRightOnTheSchema(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	for _, role := range []string{"relay", "operator", "reader", "archiver"} {
		db := ledgertest.As(t, pool, role)
		if _, err := db.Exec(t.Context(), "select from coupons.campaign"); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s reads the table: %v", role, err)
		}
		if all, err := subscribers.ReadStates(t.Context(), db); err != nil || len(all) != 1 {
			t.Errorf("%s: %d states, %v", role, len(all), err)
		}
		if _, err := subscribers.ReadParked(t.Context(), db, "coupons", subscribers.EventName{}, 10); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
}

// An operator changes what a subscriber handles with a record of it only, also in SQL.
func TestOperatorsActsAreOnRecord(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	registerCoupons(1)(t, pool)
	operator := ledgertest.As(t, pool, "operator")
	for _, sql := range []string{
		"update taskledger.subscriber_parked set state = 'retry'",
		"update taskledger.subscriber_state set wanted = 'rebuild'",
		`insert into taskledger.subscriber_parked (reader, kind, biz_id, version, position, state, error, failures)
		 values ('subscriber/coupons', 'a', 'b', 1, 1, 'discarded', '', 1)`,
		"select taskledger_internal.retry_subscriber('coupons', 'a', 'b')",
		"select taskledger_internal.discard_subscriber('coupons', 'a', 'b')",
		"select taskledger_internal.ask_subscriber('coupons', 'rebuild')",
	} {
		if _, err := operator.Exec(t.Context(), sql); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if err := subscribers.RequestVerify(t.Context(), operator, "coupons"); err != nil {
		t.Error(err)
	}
	if err := subscribers.RequestRebuild(t.Context(), operator, "coupons", "", ""); err != nil {
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

// register runs a subscriber until it is registered.
func register(t *testing.T, pool *pgxpool.Pool, p outbox.Subscription) {
	t.Helper()
	stop := start(t, quick(pool, p))
	defer stop()
	await(t, "the subscriber is registered", func() bool {
		r, err := subscribers.ReadState(context.WithoutCancel(t.Context()), pool, p.Name)
		return err == nil && r.Version == p.Tables.Version
	})
}
