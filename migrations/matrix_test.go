package migrations_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

// possibilities selects everything that a role might do with each object of the schema: the object, the privilege, and
// a statement that needs the privilege and changes nothing. A statement is empty if none is that simple. The names of
// columns stand for themselves where a role may use only some of them.
const possibilities = `
	with relation as (
	  select c.oid, c.oid::regclass::text as name, c.relkind
	    from pg_class c
	   where c.relnamespace::regnamespace::text in ('taskledger', 'taskledger_internal')
	     and c.relkind in ('r', 'p', 'v', 'm', 'S')),
	column_of as (
	  select r.name, r.oid, quote_ident(a.attname) as column, a.atttypid::regtype::text as type, a.attnum
	    from relation r join pg_attribute a on a.attrelid = r.oid
	   where r.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped),
	function as (
	  select p.oid, p.pronamespace::regnamespace || '.' || p.proname as name,
	         p.prorettype = 'trigger'::regtype as is_trigger,
	         coalesce((select string_agg('null::' || t::regtype, ', ' order by o)
	                     from unnest(p.proargtypes::oid[]) with ordinality u(t, o)), '') as args,
	         p.pronargs
	    from pg_proc p where p.pronamespace::regnamespace::text in ('taskledger', 'taskledger_internal'))
	select 'schema ' || name, privilege, '', has_schema_privilege($1, name, privilege)
	  from unnest(array['taskledger', 'taskledger_internal']) name, unnest(array['usage', 'create']) privilege
	 union all
	select r.name, privilege,
	       case privilege when 'select' then 'select r from ' || r.name || ' r limit 0'
	                      when 'delete' then 'delete from ' || r.name || ' where false'
	                      when 'truncate' then 'truncate ' || r.name || ' cascade'
	                      when 'trigger' then 'create trigger forged after insert on ' || r.name ||
	                                          ' execute function pg_catalog.suppress_redundant_updates_trigger()'
	                      else '' end,
	       has_table_privilege($1, r.oid, privilege)
	  from relation r, unnest(array['select', 'delete', 'truncate', 'trigger', 'references']) privilege
	 where r.relkind in ('r', 'p') or privilege = 'select' and r.relkind <> 'S'
	 union all
	select c.name || '.' || c.column, privilege,
	       case privilege
	         when 'select' then 'select ' || c.column || ' from ' || c.name || ' limit 0'
	         when 'insert' then 'insert into ' || c.name || ' (' || c.column ||
	                            ') overriding system value select null::' || c.type || ' where false'
	         else 'update ' || c.name || ' set ' || c.column || ' = default where false' end,
	       has_column_privilege($1, c.oid, c.attnum, privilege)
	  from column_of c, unnest(array['select', 'insert', 'update']) privilege
	 union all
	select r.name, privilege,
	       case when privilege = 'usage' and has_sequence_privilege($1, r.oid, 'update') then '' -- nextval needs either
	            when privilege = 'usage' then 'select nextval(''' || r.name || ''')'
	            when privilege = 'update' then 'select setval(''' || r.name || ''', 1)'
	            else 'select last_value from ' || r.name end,
	       has_sequence_privilege($1, r.oid, privilege)
	  from relation r, unnest(array['usage', 'select', 'update']) privilege where r.relkind = 'S'
	 union all
	select f.name, 'execute',
	       case when not f.is_trigger then 'explain select ' || f.name || '(' ||
	              (select coalesce(string_agg('a' || n, ', ' order by n), '') from generate_series(1, f.pronargs) n) ||
	              ') from (select ' || case when f.pronargs > 0 then f.args || ' offset 0) s(' ||
	              (select string_agg('a' || n, ', ' order by n) from generate_series(1, f.pronargs) n) || ')'
	              else ') s' end
	            else '' end,
	       has_function_privilege($1, f.oid, 'execute')
	  from function f
	 union all
	select y.oid::regtype::text, 'usage', '', has_type_privilege($1, y.oid, 'usage')
	  from pg_type y where y.typnamespace = 'taskledger'::regnamespace and y.typtype in ('e', 'd')
	 order by 1, 2`

// possibility is one of possibilities.
type possibility struct {
	Object, Privilege, Statement string
	Granted                      bool
}

// can returns what a role may do and what it may not.
func can(t *testing.T, pool *pgxpool.Pool, role string) []possibility {
	t.Helper()
	rows, _ := pool.Query(t.Context(), possibilities, migrations.RoleName("taskledger_test", role))
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[possibility])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const matrixFile = "testdata/rights.txt"

const matrixHead = `# Rights of each role of migrations/roles.sql in each object of the schemas, as a database has them.
# - is none.
# A new table, column, function or sequence changes this file: decide for each role, then run
#   make schema
`

// Each object of the schema has a decision for each role. A new one fails this test until its rights are decided.
func TestRightsMatrix(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	var lines []string
	granted := make(map[string]map[string]bool) // by line, then by role
	for _, role := range migrations.Roles() {
		for _, p := range can(t, pool, role) {
			line := p.Object + " " + p.Privilege
			if granted[line] == nil {
				granted[line] = make(map[string]bool)
				lines = append(lines, line)
			}
			if p.Granted {
				granted[line][role] = true
			}
		}
	}
	var b strings.Builder
	b.WriteString(matrixHead)
	for _, line := range lines {
		roles := "-"
		for _, role := range migrations.Roles() {
			if granted[line][role] {
				roles = strings.TrimPrefix(roles+" "+role, "- ")
			}
		}
		fmt.Fprintf(&b, "%-48s %s\n", line, roles)
	}
	if *update {
		if err := os.WriteFile(matrixFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(string(want), b.String()); diff != "" {
		t.Errorf("rights (-%s +database):\n%s", matrixFile, diff)
	}
}

var errDone = errors.New("the statement was executed")

// try executes a statement in a transaction that is rolled back, and returns its error.
func try(t *testing.T, db *pgxpool.Pool, statement string) error {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			return err
		}
		return errDone
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// Each role tries everything that there is, and is refused what it may not do.
func TestRolesTryEverything(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	for _, role := range migrations.Roles() {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			db := ledgertest.As(t, owner, role)
			tried := 0
			for _, p := range can(t, owner, role) {
				if p.Statement == "" {
					continue
				}
				tried++
				err := try(t, db, p.Statement)
				if p.Granted && err != nil {
					t.Errorf("%s: %v", p.Statement, err)
				}
				if !p.Granted && !pgerr.Is(err, pgerr.InsufficientPrivilege) {
					t.Errorf("%s: %v, want insufficient_privilege", p.Statement, err)
				}
			}
			for _, statement := range ownersStatements(t, owner, role) {
				tried++
				if err := try(t, db, statement); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
					t.Errorf("%s: %v, want insufficient_privilege", statement, err)
				}
			}
			if tried < 400 {
				t.Errorf("only %d statements were tried", tried)
			}
		})
	}
}

// ownersStatements returns statements that no role but the owner may execute, for each object of the schema.
func ownersStatements(t *testing.T, owner *pgxpool.Pool, role string) []string {
	t.Helper()
	all := []string{
		"create table taskledger.forged ()",
		"create view taskledger.forged as select 1",
		"create sequence taskledger.forged",
		"create type taskledger.forged as enum ()",
		"create function taskledger.forged() returns void language sql begin atomic end",
		"create view taskledger_internal.forged as select 1",
		"create function taskledger_internal.forged() returns void language sql begin atomic end",
		"alter schema taskledger rename to forged",
		"alter schema taskledger_internal rename to forged",
		"drop schema taskledger, taskledger_internal cascade",
		"create role taskledger_forged",
		"alter role current_user superuser",
		"set role postgres",
		"copy (select 1) to program 'true'",
		"select pg_read_file('PG_VERSION')",
		"set session_replication_role = replica",
	}
	for _, other := range migrations.Roles() {
		if other != role {
			all = append(all, "set role "+migrations.RoleName("taskledger_test", other))
		}
	}
	return append(all, texts(t, owner, `
		select format(s, c.oid::regclass, a.attname)
		  from pg_class c
		  join pg_attribute a on a.attrelid = c.oid and a.attnum = 1
		 cross join unnest(array[
		         'drop table %1$s cascade', 'alter table %1$s rename to forged',
		         'alter table %1$s add column forged integer',
		         'alter table %1$s drop column %2$I cascade', 'alter table %1$s alter column %2$I drop default',
		         'alter table %1$s disable trigger all', 'alter table %1$s disable row level security',
		         'create policy forged on %1$s using (true)', 'create index on %1$s (%2$I)',
		         'create rule forged as on insert to %1$s do instead nothing', 'comment on table %1$s is ''forged''']) s
		 where c.relnamespace = 'taskledger'::regnamespace and c.relkind in ('r', 'p')
		 union all
		select format('lock table %s in %s mode', c.oid::regclass, mode)
		  from pg_class c, unnest(array['share update exclusive', 'share', 'share row exclusive',
		                                'exclusive', 'access exclusive']) mode
		 where c.relnamespace::regnamespace::text in ('taskledger', 'taskledger_internal')
		   and c.relkind in ('r', 'p', 'v')
		   and not ($1 like '%relay' and c.relname in ('cursor', 'task_count')) -- see docs/operations.md
		 union all
		select 'drop policy ' || quote_ident(p.polname) || ' on ' || p.polrelid::regclass from pg_policy p
		 union all
		select 'drop trigger ' || quote_ident(g.tgname) || ' on ' || g.tgrelid::regclass
		  from pg_trigger g join pg_class c on c.oid = g.tgrelid
		 where c.relnamespace = 'taskledger'::regnamespace and not g.tgisinternal
		 union all
		select 'drop view ' || c.oid::regclass || ' cascade' from pg_class c
		 where c.relnamespace::regnamespace::text in ('taskledger', 'taskledger_internal') and c.relkind = 'v'
		 union all
		select s || p.oid::regprocedure || e
		  from pg_proc p
		 cross join (values ('drop function ', ' cascade'), ('alter function ', ' security invoker'),
		                    ('alter function ', ' set search_path = public')) f(s, e)
		 where p.pronamespace::regnamespace::text in ('taskledger', 'taskledger_internal')`,
		migrations.RoleName("taskledger_test", role))...)
}
