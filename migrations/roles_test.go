package migrations_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

// texts returns the single column of a query.
func texts(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), sql, args...)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// aclOf selects every privilege in the schemas: role (empty for PUBLIC), privilege, object with its column.
const aclOf = `
	select coalesce(r.rolname, '') || ' ' || lower(a.privilege_type) || ' ' || o.name
	  from (
	    select n.nspname as name, coalesce(n.nspacl, acldefault('n', n.nspowner)) as acl, n.nspowner as owner
	      from pg_namespace n where n.nspname in ('taskledger', 'taskledger_internal')
	     union all
	    select c.oid::regclass::text,
	           coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner)),
	           c.relowner
	      from pg_class c
	     where c.relnamespace::regnamespace::text in ('taskledger', 'taskledger_internal')
	       and c.relkind in ('r', 'v', 'S', 'm', 'p')
	     union all
	    select c.oid::regclass || '.' || t.attname, t.attacl, c.relowner
	      from pg_attribute t join pg_class c on c.oid = t.attrelid
	     where c.relnamespace::regnamespace::text in ('taskledger', 'taskledger_internal') and t.attacl is not null
	     union all
	    select p.pronamespace::regnamespace || '.' || p.proname, coalesce(p.proacl, acldefault('f', p.proowner)),
	           p.proowner
	      from pg_proc p where p.pronamespace::regnamespace::text in ('taskledger', 'taskledger_internal')
	     union all
	    select y.oid::regtype::text, coalesce(y.typacl, acldefault('T', y.typowner)), y.typowner
	      from pg_type y where y.typnamespace = 'taskledger'::regnamespace and y.typtype in ('e', 'd')) o
	 cross join lateral aclexplode(o.acl) a
	  left join pg_roles r on r.oid = a.grantee
	 where a.grantee <> o.owner
	 order by 1`

// The migrations grant PUBLIC nothing. A new function is executable by PUBLIC until it is revoked.
func TestNothingIsPublic(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	for _, right := range texts(t, pool, aclOf) {
		if strings.HasPrefix(right, " ") {
			t.Errorf("PUBLIC has:%s", right)
		}
	}
	for _, schema := range []string{"taskledger", "taskledger_internal"} {
		change(t, pool, "create function "+schema+".mutant() returns void language sql begin atomic end")
		if !slices.Contains(texts(t, pool, aclOf), " execute "+schema+".mutant") {
			t.Errorf("the query does not find a new function of %s", schema)
		}
	}
}

func change(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

var (
	grantStatement = regexp.MustCompile(`(?m)^grant (.*) on (.*) to (.*);$`)
	columnsOf      = regexp.MustCompile(`^(\w+) \((.*)\)$`)
)

// rightsIn returns the privileges of a script, as aclOf selects them.
func rightsIn(t *testing.T, script string) (all []string) {
	t.Helper()
	for _, m := range grantStatement.FindAllStringSubmatch(script, -1) {
		objects := strings.TrimPrefix(strings.TrimPrefix(m[2], "function "), "schema ")
		for role := range strings.SplitSeq(m[3], ", ") {
			for object := range strings.SplitSeq(objects, ", ") {
				privileges, columns := m[1], []string{""}
				if c := columnsOf.FindStringSubmatch(m[1]); c != nil {
					privileges, columns = c[1], strings.Split(c[2], ", ")
				}
				for privilege := range strings.SplitSeq(privileges, ", ") {
					for _, column := range columns {
						name := strings.Trim(object+"."+column, ".")
						all = append(all, strings.Trim(role, `"`)+" "+privilege+" "+name)
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The database has the rights that roles.sql lists, and no others, also after an earlier state.
func TestRolesHaveTheirRights(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	const prefix = "taskledger_test" // the roles that ledgertest makes, which all databases of the server share
	script, err := migrations.RolesSQL(prefix)
	if err != nil {
		t.Fatal(err)
	}
	want := rightsIn(t, script)
	if len(want) < 200 {
		t.Fatalf("only %d rights were found in roles.sql", len(want))
	}
	check := func() {
		t.Helper()
		got := texts(t, pool, aclOf)
		slices.Sort(got)
		if diff := difference.Of(want, got); diff != "" {
			t.Errorf("rights (-roles.sql +database):\n%s", diff)
		}
	}
	check()
	change(t, pool, "grant insert, delete on taskledger.event to taskledger_test_producer")
	change(t, pool, "revoke usage on schema taskledger, taskledger_internal from taskledger_test_producer")
	change(t, pool, "grant execute on function taskledger_internal.fire_timers to taskledger_test_producer")
	change(t, pool, "drop policy taskledger_test_producer on taskledger.event")
	change(t, pool, "create policy taskledger_test_producer on taskledger.event for insert with check (true)")
	address := pool.Config().ConnString()
	const policies = `
		select p.polname || ' ' || p.polrelid::regclass || ' ' || p.oid || ' '
		       || pg_get_expr(p.polwithcheck, p.polrelid)
		  from pg_policy p where p.polwithcheck is not null order by 1`
	var once []string
	for range 2 {
		names, err := migrations.MakeRoles(t.Context(), address, prefix)
		if err != nil || len(names) != len(migrations.Roles()) {
			t.Fatalf("%v, %v", names, err)
		}
		check()
		if once == nil {
			once = texts(t, pool, policies)
		}
	}
	// A policy that is right is not made again, which would lock the table.
	if diff := difference.Of(once, texts(t, pool, policies)); diff != "" {
		t.Errorf("policies (-first +second):\n%s", diff)
	}
	for _, p := range once {
		if strings.HasSuffix(p, " true") {
			t.Errorf("the policy is as it was: %s", p)
		}
	}
}

// The name of the database is the prefix, whatever its characters; an invalid prefix is refused.
func TestRolesOfADatabase(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", strings.Repeat("x", 60), "a$roles$b"} {
		if script, err := migrations.RolesSQL(prefix); err == nil {
			t.Errorf("%q: %s", prefix, script)
		}
	}
	pool := ledgertest.Pool(t, ledgertest.Owner)
	prefix := `Odd "name'\ ` + pool.Config().ConnConfig.Database[20:]
	names, err := migrations.MakeRoles(t.Context(), pool.Config().ConnString(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		quoted := pgx.Identifier{name}.Sanitize()
		t.Cleanup(func() { change(t, pool, "drop owned by "+quoted+"; drop role "+quoted) })
	}
	change(t, pool, "create role user_of_"+prefix[len(prefix)-8:])
	t.Cleanup(func() { change(t, pool, "drop role user_of_"+prefix[len(prefix)-8:]) })
	change(t, pool, "grant "+pgx.Identifier{names[0]}.Sanitize()+" to user_of_"+prefix[len(prefix)-8:])
}

// Workers that are limited to kinds keep their kinds when the roles are made again without them.
func TestLimitedWorkersStay(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "mails", "mails=", "Mails=a", "mails=a,", "mails=a b", "mails=*", "mails=a.*.*", "mails=taskledger.alarm",
		"mails=taskledger.*", "mails=taskledger", "reads=a", strings.Repeat("x", 60) + "=a", "mails=a'",
	} {
		if l, err := migrations.ParseLimitedWorker(text); err == nil {
			t.Errorf("%q: %+v", text, l)
		}
	}
	pool := ledgertest.Pool(t, ledgertest.Owner)
	prefix := "limited_" + pool.Config().ConnConfig.Database[20:]
	l, err := migrations.ParseLimitedWorker("mails=coupon.send,mail.*")
	if err != nil || l.String() != "mails=coupon.send,mail.*" {
		t.Fatal(l, err)
	}
	made, err := migrations.MakeRoles(t.Context(), pool.Config().ConnString(), prefix, l)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range made {
		t.Cleanup(func() { change(t, pool, "drop owned by "+name+"; drop role "+name) })
	}
	rights := texts(t, pool, aclOf)
	const policiesSQL = "select oid || ' ' || polname from pg_policy order by 1"
	policies := texts(t, pool, policiesSQL)
	change(t, pool, "revoke all on taskledger.event from "+made[len(made)-1])
	again, err := migrations.MakeRoles(t.Context(), pool.Config().ConnString(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(made, again); diff != "" {
		t.Errorf("roles (-first +second):\n%s", diff)
	}
	if diff := difference.Of(rights, texts(t, pool, aclOf)); diff != "" {
		t.Errorf("rights (-first +second):\n%s", diff)
	}
	if diff := difference.Of(policies, texts(t, pool, policiesSQL)); diff != "" {
		t.Errorf("policies (-first +second):\n%s", diff)
	}
	l.Kinds = []string{"mail.*"}
	if _, err := migrations.MakeRoles(t.Context(), pool.Config().ConnString(), prefix, l); err != nil {
		t.Fatal(err)
	}
	const rule = "select pg_get_expr(polwithcheck, polrelid) from pg_policy where polname = $1 and polcmd = 'a' " +
		"and polrelid = 'taskledger.event'::regclass"
	if texts := texts(t, pool, rule, made[len(made)-1]); len(texts) != 1 || strings.Contains(texts[0], "coupon") {
		t.Errorf("the kinds are not replaced: %v", texts)
	}
}
