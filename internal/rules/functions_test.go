package rules_test

import (
	"slices"
	"strings"
	"testing"

	pgxdriver "github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// functions are the SQL functions that users call: all of schema taskledger. The documents describe each of them, or
// its comment does. A function that only taskledger calls belongs in schema taskledger_internal.
var functions = []string{
	"advance_feed",
	"cancel",
	"claim",
	"claim_next",
	"enqueue",
	"enqueue_many",
	"erase_salts",
	"fail",
	"finish",
	"give_subscriber",
	"heartbeat",
	"read_feed",
	"release",
	"remove_subscriber",
	"reschedule",
	"schema_version",
	"seek_feed",
	"shard_of",
	"snooze",
	"state_after",
}

// views are the views that users read: all of schema taskledger.
var views = []string{
	"archive_gaps",
	"broker",
	"cursors",
	"erasures",
	"kind_minutes",
	"limit_use",
	"logins",
	"moments",
	"outbox",
	"overload",
	"paused_kinds",
	"permits",
	"start_limits",
	"subscribers",
	"task_counts",
	"tasks",
	"timers",
	"workers",
}

// maxOnPage keeps the lists of psql's \df taskledger.* and \dv taskledger.* on a page each.
const maxOnPage = 24

// TestFunctionsOfUsers holds the functions of schema taskledger to those that users call, each with a comment for them.
func TestFunctionsOfUsers(t *testing.T) {
	t.Parallel()
	testPublished(t, "functions", functions, `
		select p.proname::text, coalesce(obj_description(p.oid, 'pg_proc'), '')
		  from pg_proc p where p.pronamespace = 'taskledger'::regnamespace order by p.proname`)
}

// TestViewsOfUsers holds the views of schema taskledger to those that users read, each with a comment for them.
func TestViewsOfUsers(t *testing.T) {
	t.Parallel()
	testPublished(t, "views", views, `
		select c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), '')
		  from pg_class c
		 where c.relnamespace = 'taskledger'::regnamespace and c.relkind = 'v' order by c.relname`)
}

// testPublished compares the names that query selects, with their comments, with those in want.
func testPublished(t *testing.T, what string, want []string, query string) {
	t.Helper()
	type object struct{ Name, Comment string }
	rows, _ := ledgertest.Pool(t).Query(t.Context(), query)
	all, err := pgxdriver.CollectRows(rows, pgxdriver.RowToStructByPos[object])
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Name)
		if o.Comment == "" || strings.HasPrefix(o.Comment, "Internal") {
			t.Errorf("taskledger.%s has the comment %q, want one for users", o.Name, o.Comment)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("schema taskledger has the %s\n%v, those of users are\n%v: "+
			"create the others in schema taskledger_internal", what, names, want)
	}
	if len(want) > maxOnPage {
		t.Errorf("users have %d %s, at most %d fit on a page", len(want), what, maxOnPage)
	}
}

// TestInternalSchema keeps tables, sequences and types in schema taskledger, where the rules of owners find them.
func TestInternalSchema(t *testing.T) {
	t.Parallel()
	rows, _ := ledgertest.Pool(t).Query(t.Context(), `
		select pg_describe_object(d.classid, d.objid, 0)
		  from pg_depend d
		 where d.refclassid = 'pg_namespace'::regclass and d.refobjid = 'taskledger_internal'::regnamespace
		   and d.classid <> 'pg_proc'::regclass
		   and not exists (
		       select from pg_class c where d.classid = 'pg_class'::regclass and c.oid = d.objid and c.relkind = 'v')`)
	others, err := pgxdriver.CollectRows(rows, pgxdriver.RowTo[string])
	if err != nil || len(others) > 0 {
		t.Errorf("schema taskledger_internal has %v, %v: want functions and views alone", others, err)
	}
}
