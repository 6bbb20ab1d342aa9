package archiver_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// answer is what all forms of an enqueue answer.
type answer struct {
	IsNew   bool
	State   string
	Version int
	Same    bool
}

func answerOf(e ledger.Enqueued) answer {
	return answer{e.New, string(e.State), int(e.Version), e.SameArgs}
}

// checkingForms enqueue a key with CheckArchive.
var checkingForms = map[string]func(*fixture, string, ledger.IfExists) (answer, error){
	"Enqueue": func(f *fixture, id string, i ledger.IfExists) (answer, error) {
		o := &ledger.EnqueueOptions{CheckArchive: true, IfExists: i}
		e, err := ledger.Enqueue(f.Context(), f.DB, key(id), json.RawMessage(`{"n":2}`), o)
		return answerOf(e), err
	},
	"EnqueueMany": func(f *fixture, id string, i ledger.IfExists) (answer, error) {
		o := &ledger.EnqueueOptions{CheckArchive: true, IfExists: i}
		e, err := ledger.EnqueueMany(f.Context(), f.DB, []ledger.Entry{
			{Key: key(id + "-other")}, {Key: key(id), Args: json.RawMessage(`{"n":2}`), Options: o},
		})
		if err != nil {
			return answer{}, err
		}
		return answerOf(e[1]), nil
	},
	"SQL enqueue": func(f *fixture, id string, i ledger.IfExists) (a answer, err error) {
		err = f.DB.QueryRow(f.Context(), `
			select e.is_new, e.state::text, e.version, e.same_args
			  from taskledger.enqueue($1, $2, '{"n":2}', if_exists => coalesce(nullif($3, ''), 'same'),
			                          check_archive => true) e`, kind, id, string(i)).
			Scan(&a.IsNew, &a.State, &a.Version, &a.Same)
		return a, err
	},
	"SQL enqueue_many": func(f *fixture, id string, i ledger.IfExists) (a answer, err error) {
		entry := map[string]any{"kind": kind, "biz_id": id, "args": map[string]int{"n": 2}, "check_archive": true}
		if i != "" {
			entry["if_exists"] = i
		}
		text, err := json.Marshal([]any{entry})
		if err != nil {
			return a, err
		}
		err = f.DB.QueryRow(f.Context(), `
			select e.is_new, e.state::text, e.version, e.same_args from taskledger.enqueue_many($1) e`, string(text)).
			Scan(&a.IsNew, &a.State, &a.Version, &a.Same)
		return a, err
	},
}

// An enqueue that asks gets the archived task at once, as one that exists, and writes nothing.
func TestEnqueueChecksTheArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("Enqueue", "EnqueueMany", "SQL enqueue", "SQL enqueue_many")
	f.archive()
	for name, enqueue := range checkingForms {
		t.Run(name, func(t *testing.T) {
			f := &fixture{f.In(t)}
			check := func(what string, i ledger.IfExists, id string, want answer) {
				t.Helper()
				if got, err := enqueue(f, id, i); got != want || err != nil {
					t.Errorf("%s: got %+v, %v; want %+v", what, got, err, want)
				}
			}
			check("a key that is unknown", ledger.IfExistsSame, name+"-new", answer{true, "available", 1, true})
			archived := answer{false, "succeeded", 3, true}
			check("an archived key", ledger.IfExistsSame, name, archived)
			check("an archived key, ignored", ledger.IfExistsIgnore, name, archived)
			f.want("events", f.events(name), "")
			ledgertest.Enqueue(t, f.DB, key(name), `{}`)
			check("a duplicate that waits", ledger.IfExistsSame, name, archived)
			check("run again", ledger.IfExistsRerun, name, answer{true, "available", 5, true})
			check("running again", ledger.IfExistsSame, name, answer{false, "available", 5, true})
		})
	}
}

// counting counts statements.
type counting struct {
	ledger.DB
	n int
}

func (c *counting) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c.n++
	return c.DB.Exec(ctx, sql, args...)
}

func (c *counting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.n++
	return c.DB.Query(ctx, sql, args...)
}

// A search in the archive takes no statement of its own, except for a task that exists or is archived. Without the
// option, nothing is searched.
func TestStatementsOfArchiveChecks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	f.archive()
	for _, test := range []struct {
		name  string
		id    string
		check bool
		want  int
	}{
		{name: "new, with a look", id: "3", check: true, want: 1},
		{name: "exists, with a look", id: "3", check: true, want: 3},
		{name: "archived, with a look", id: "1", check: true, want: 3},
		{name: "new", id: "4", want: 1},
		{name: "exists", id: "4", want: 2},
		{name: "archived", id: "2", want: 1},
	} {
		db := &counting{DB: f.DB}
		o := &ledger.EnqueueOptions{CheckArchive: test.check}
		if _, err := ledger.Enqueue(t.Context(), db, key(test.id), nil, o); err != nil || db.n != test.want {
			t.Errorf("%s: %d statements, want %d; %v", test.name, db.n, test.want, err)
		}
	}
}
