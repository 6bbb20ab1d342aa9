package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A login with the right to replace, rerun or follow a task becomes the author of its run, which it may then cancel. So
// the right is the same as to cancel the task, in each state and on each path.
func TestRightsOfRuns(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "reader")
	other := ledgertest.As(t, pool, "producer", "worker")
	states := map[string][]ledger.EventType{
		"available": nil, "running": {ledger.EventStarted}, "finished": {ledger.EventSucceeded},
	}
	paths := map[string]func(ledger.Key, ledger.IfExists) error{
		"Enqueue": func(k ledger.Key, i ledger.IfExists) error {
			return second(enqueueAs(t, pool, k, "2", ledger.EnqueueOptions{IfExists: i}))
		},
		"Enqueue of Tx": func(k ledger.Key, i ledger.IfExists) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				return second(enqueueAs(t, tx, k, "2", ledger.EnqueueOptions{IfExists: i}))
			})
		},
		"EnqueueMany": func(k ledger.Key, i ledger.IfExists) error {
			o := &ledger.EnqueueOptions{IfExists: i}
			return second(ledger.EnqueueMany(t.Context(), pool, []ledger.Entry{
				{Key: ledger.Key{Kind: k.Kind, BizID: "new-" + k.BizID}, Args: json.RawMessage("2")},
				{Key: k, Args: json.RawMessage("2"), Options: o},
			}))
		},
		"enqueue": func(k ledger.Key, i ledger.IfExists) error {
			return second(pool.Exec(t.Context(), "select taskledger.enqueue($1, $2, '2', if_exists => $3)",
				string(k.Kind), string(k.BizID), string(i)))
		},
		"enqueue_many": func(k ledger.Key, i ledger.IfExists) error {
			return second(pool.Exec(t.Context(), "select taskledger.enqueue_many(json_build_array(json_build_object("+
				"'kind', $1::text, 'biz_id', $2::text, 'args', 2, 'if_exists', $3::text)))",
				string(k.Kind), string(k.BizID), string(i)))
		},
		"enqueue_again": func(k ledger.Key, i ledger.IfExists) error {
			return second(pool.Exec(t.Context(), "select taskledger_internal.enqueue_again($1, $2, $3, '2', null, "+
				"null, 1, 0, null, null, null, null, null, null, null, null, false)",
				string(k.Kind), string(k.BizID), string(i)))
		},
	}
	for state, events := range states {
		k := ledger.Key{Kind: "customer.resync", BizID: ledger.BizID(state)}
		ledgertest.Enqueue(t, other, k, "1")
		if len(events) > 0 {
			ledgertest.Append(t, other, k, events...)
		}
		for _, i := range []ledger.IfExists{ledger.IfExistsRerun, ledger.IfExistsReplace, ledger.IfExistsFollow} {
			for path, enqueue := range paths {
				err := enqueue(k, i)
				if sqlState(err) != "42501" || !strings.Contains(err.Error(), "another login has enqueued it") {
					t.Errorf("%s: %s of a task that is %s: %v", path, i, state, err)
				}
			}
		}
		o := ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}
		if answer, err := enqueueAs(t, pool, k, "2", o); err != nil || answer.New {
			t.Errorf("ignore: %+v, %v", answer, err)
		}
		if answer, err := enqueueAs(t, pool, k, "1", ledger.EnqueueOptions{}); err != nil || answer.New {
			t.Errorf("same: %+v, %v", answer, err)
		}
		if task := loaded(t, pool, k); string(task.Args) != "1" {
			t.Errorf("%s has args %s", state, task.Args)
		}
	}
	ledgertest.Check(t, pool)
}

// No producer inserts an event with args into a task of another login, nor a run behind it: the row policies refuse it.
func TestRowsOfRunsAreRefused(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer")
	other := ledgertest.As(t, pool, "producer", "reader")
	ledgertest.Enqueue(t, other, ledger.Key{Kind: "customer.resync", BizID: "17"}, "1")
	for _, row := range []string{
		") values (2, 0, 0, 'enqueued', 'customer.resync', '17', '2')",
		") values (2, 0, 0, 'scheduled', 'customer.resync', '17', '2')",
		", run) values (2, 0, 0, 'enqueued', 'customer.resync', '17', '2', 1)",
		") values (1, 0, 0, 'scheduled', 'taskledger.next', 'customer.resync/17', '2')",
	} {
		const insert = "insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data"
		if _, err := pool.Exec(t.Context(), insert+row); sqlState(err) != "42501" {
			t.Errorf("%s: %v", row, err)
		}
	}
}

// An operator replaces and reruns each task, as it cancels each; so does a member of the login that enqueued it. The
// author of a task does not replace a run behind it that another login has enqueued.
func TestOperatorsAndMembersRunAgain(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "worker")
	operator := ledgertest.As(t, pool, "producer", "operator")
	k := ledger.Key{Kind: "customer.resync", BizID: "17"}
	ledgertest.Enqueue(t, pool, k, "1")
	replace := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}
	follow := ledger.EnqueueOptions{IfExists: ledger.IfExistsFollow}
	if answer, err := enqueueAs(t, operator, k, "2", replace); err != nil || !answer.New {
		t.Errorf("an operator: %+v, %v", answer, err)
	}
	if _, err := enqueueAs(t, pool, k, "3", replace); sqlState(err) != "42501" {
		t.Errorf("the login of the args before: %v", err)
	}

	running := ledger.Key{Kind: "customer.resync", BizID: "18"}
	ledgertest.Enqueue(t, pool, running, "1")
	ledgertest.Append(t, pool, running, ledger.EventStarted)
	if answer, err := enqueueAs(t, pool, running, "2", follow); err != nil || !answer.New {
		t.Errorf("a run behind its own task: %+v, %v", answer, err)
	}
	if answer, err := enqueueAs(t, pool, running, "3", follow); err != nil || !answer.New {
		t.Errorf("again: %+v, %v", answer, err)
	}
	if answer, err := enqueueAs(t, operator, running, "4", follow); err != nil || !answer.New {
		t.Errorf("an operator's run behind it: %+v, %v", answer, err)
	}
	if _, err := enqueueAs(t, pool, running, "5", follow); sqlState(err) != "42501" {
		t.Errorf("a run instead of the operator's: %v", err)
	}
	ledgertest.Append(t, pool, running, ledger.EventSucceeded)
	rerun := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	if _, err := enqueueAs(t, pool, running, "5", rerun); sqlState(err) != "42501" {
		t.Errorf("the next run instead of the operator's: %v", err)
	}

	own := ledger.Key{Kind: "customer.resync", BizID: "19"}
	ledgertest.Enqueue(t, pool, own, "1")
	tx, err := ledgertest.As(t, pool, ledgertest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	name := pgx.Identifier{"taskledger_test_rerun_member"}.Sanitize()
	author := pgx.Identifier{pool.Config().ConnConfig.User}.Sanitize()
	for _, statement := range []string{
		"create role " + name, fmt.Sprintf("grant %s to %s", author, name),
		"set session authorization " + name,
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := enqueueAs(t, tx, own, "2", replace); err != nil || !answer.New {
		t.Errorf("a member of the login that enqueued it: %+v, %v", answer, err)
	}
	ledgertest.Check(t, operator)
}

// A login that inherits no rights replaces a task as the operator whose role it has set.
func TestRunsInASetRole(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "reader")
	k := ledger.Key{Kind: "customer.resync", BizID: "17"}
	ledgertest.Enqueue(t, pool, k, "1")
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	var producer, operator string
	err := owner.QueryRow(t.Context(), `
		select min(r.rolname) filter (where p.proname = 'enqueue'),
		       min(r.rolname) filter (where p.proname = 'change_task')
		  from pg_proc p, aclexplode(p.proacl) a, pg_roles r
		 where p.pronamespace in ('taskledger'::regnamespace, 'taskledger_internal'::regnamespace)
		   and r.oid = a.grantee and r.oid <> p.proowner`).Scan(&producer, &operator)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, statement := range []string{
		"create role taskledger_test_set_role noinherit",
		fmt.Sprintf("grant %s, %s to taskledger_test_set_role", pgx.Identifier{producer}.Sanitize(),
			pgx.Identifier{operator}.Sanitize()),
		"set session authorization taskledger_test_set_role",
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	replace := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}
	for _, role := range []struct{ name, want string }{{producer, "42501"}, {operator, ""}} {
		err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "set local role "+pgx.Identifier{role.name}.Sanitize()); err != nil {
				return err
			}
			return second(enqueueAs(t, tx, k, "2", replace))
		})
		if sqlState(err) != role.want {
			t.Errorf("as %s: %v", role.name, err)
		}
	}
}
