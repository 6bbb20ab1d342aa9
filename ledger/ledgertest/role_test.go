package ledgertest_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/migrations"
)

// A login has exactly the roles that the test names. All six together are not the owner.
func TestLoginsHaveTheirRoles(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	for _, test := range []struct{ roles, want []string }{
		{roles: nil, want: []string{"producer", "worker"}},
		{roles: []string{"worker", "producer"}, want: []string{"producer", "worker"}},
		{roles: []string{"relay", ledgertest.App}, want: []string{"producer", "relay", "worker"}},
		{roles: []string{"reader"}, want: nil}, // the role itself
		{
			roles: migrations.Roles(),
			want:  []string{"archiver", "operator", "producer", "reader", "relay", "subscriber", "worker"},
		},
	} {
		db := ledgertest.As(t, app, test.roles...)
		var isSuper, isOwner, canBypass bool
		var have []string
		err := db.QueryRow(t.Context(), `
			select r.rolsuper, r.rolbypassrls or r.rolcreaterole or r.rolcreatedb,
			       pg_has_role(n.nspowner, 'member'),
			       (select array_agg(replace(g.rolname, 'taskledger_test_', '') order by g.rolname)
			          from pg_auth_members m join pg_roles g on g.oid = m.roleid where m.member = r.oid)
			  from pg_roles r, pg_namespace n
			 where r.rolname = session_user and n.nspname = 'taskledger'`).
			Scan(&isSuper, &canBypass, &isOwner, &have)
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference.Of(test.want, have); diff != "" || isSuper || canBypass || isOwner {
			t.Errorf("%v: superuser %t, attributes %t, owner %t, roles (-want +got):\n%s",
				test.roles, isSuper, canBypass, isOwner, diff)
		}
	}
}

// Tables that one login creates in the schema public are there for the others, and a login creates schemas of its own.
func TestLoginsShareTables(t *testing.T) {
	t.Parallel()
	app := ledgertest.Pool(t)
	owner := ledgertest.As(t, app, ledgertest.Owner)
	relay := ledgertest.As(t, app, "relay")
	for _, statement := range []string{
		"create table orders (id bigserial, note text)", "create schema shop; create table shop.item (id integer)",
	} {
		if _, err := app.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	ledgertest.ExecAsOwner(t, app, "create table made_by_owner (id bigserial)")
	if _, err := relay.Exec(t.Context(), "insert into orders (note) values ('a')"); err != nil {
		t.Error(err)
	}
	if _, err := app.Exec(t.Context(), "insert into made_by_owner default values"); err != nil {
		t.Error(err)
	}
	var n int
	if err := owner.QueryRow(t.Context(), "select count(*) from orders").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d orders, %v", n, err)
	}
}

func TestUnknownRolesAreRefused(t *testing.T) {
	t.Parallel()
	for _, roles := range [][]string{{"admin"}, {"reader", "admin"}, {ledgertest.Owner, "reader"}} {
		recorder := &fatalRecorder{recorder: recorder{TB: t}}
		func() {
			defer func() { _ = recover() }()
			ledgertest.URL(recorder, roles...)
		}()
		recorder.cleanup()
		if !strings.Contains(recorder.log.String(), "role") {
			t.Errorf("%v: logged %q", roles, recorder.log.String())
		}
	}
}

// fatalRecorder panics where a test would end.
type fatalRecorder struct{ recorder }

func (r *fatalRecorder) Fatalf(format string, a ...any) {
	r.Errorf(format, a...)
	panic("the test ended")
}
