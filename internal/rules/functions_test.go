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
	"installation",
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

// maxFunctions keeps the list of psql's \df taskledger.* on a page.
const maxFunctions = 24

// TestFunctionsOfUsers holds the functions of schema taskledger to those that users call, each with a comment for them.
func TestFunctionsOfUsers(t *testing.T) {
	t.Parallel()
	type function struct{ Name, Comment string }
	rows, _ := ledgertest.Pool(t).Query(t.Context(), `
		select p.proname::text, coalesce(obj_description(p.oid, 'pg_proc'), '')
		  from pg_proc p where p.pronamespace = 'taskledger'::regnamespace order by p.proname`)
	all, err := pgxdriver.CollectRows(rows, pgxdriver.RowToStructByPos[function])
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
		if f.Comment == "" || strings.HasPrefix(f.Comment, "Internal") {
			t.Errorf("function taskledger.%s has the comment %q, want one for users", f.Name, f.Comment)
		}
	}
	if !slices.Equal(names, functions) {
		t.Errorf("schema taskledger has the functions\n%v, those of users are\n%v: "+
			"create the others in schema taskledger_internal", names, functions)
	}
	if len(functions) > maxFunctions {
		t.Errorf("users have %d functions, at most %d fit on a page", len(functions), maxFunctions)
	}
}

// TestInternalSchemaHasOnlyFunctions keeps tables, views and types in schema taskledger, where the rules of owners and
// of rights find them.
func TestInternalSchemaHasOnlyFunctions(t *testing.T) {
	t.Parallel()
	rows, _ := ledgertest.Pool(t).Query(t.Context(), `
		select pg_describe_object(d.classid, d.objid, 0)
		  from pg_depend d
		 where d.refclassid = 'pg_namespace'::regclass and d.refobjid = 'taskledger_internal'::regnamespace
		   and d.classid <> 'pg_proc'::regclass`)
	others, err := pgxdriver.CollectRows(rows, pgxdriver.RowTo[string])
	if err != nil || len(others) > 0 {
		t.Errorf("schema taskledger_internal has %v, %v: want functions alone", others, err)
	}
}
