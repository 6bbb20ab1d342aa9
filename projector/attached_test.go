package projector_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/rebuild"
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

// A rebuild keeps what others have attached to the tables.
func TestRebuildKeepsWhatOthersAttached(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.ExecAsOwner(t, pool, `
		create function public.note() returns trigger language plpgsql as $$ begin return new; end $$;
		create policy theirs on taskledger.task using (true);
		create trigger noted before update on taskledger.task for each row when (new.version < 0)
		  execute function public.note()`)
	before := attached(t, pool, "taskledger")
	if err := projector.RebuildTasks(t.Context(), ledgertest.As(t, pool, ledgertest.Owner), nil); err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(before, attached(t, pool, "taskledger")); diff != "" {
		t.Errorf("-before +after\n%s", diff)
	}
}

// The owner replaces the tables of the built-in projection and no others, whatever the registry has, and uses no schema
// that another login has made.
func TestRelayCannotChooseWhatTheOwnerReplaces(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.AllowSchemas(t, pool)
	enqueueAndSucceed(t, pool, 0, 5)
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`update taskledger.subscriber_state set tables = '{event,task}' where reader = 'projector'`)
	if err := projector.RebuildTasks(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	project(t, pool)
	check(t, pool)
	if r, _, err := rebuild.Read(t.Context(), pool, feed.ProjectorReader); err != nil || len(r.Tables) != 6 {
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
	check(t, pool)
}
