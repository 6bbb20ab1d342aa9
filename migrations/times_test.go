package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// writableTimes selects the moments that a role of programs or persons writes, and whether a check refuses what readers
// cannot read. The policies of timer and lease refuse more, see TestTimersAtUnreadableTimes and TestMalformedLeases.
const writableTimes = `
	select c.relname::text, a.attname::text, exists (
	         select from pg_constraint k
	          where k.conrelid = c.oid and k.contype = 'c' and a.attnum = any (k.conkey))
	  from pg_class c
	  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
	 where c.relnamespace = 'taskledger'::regnamespace and c.relkind in ('r', 'p')
	   and a.atttypid = 'timestamptz'::regtype and c.relname not in ('timer', 'lease')
	   and exists (
	     select from unnest(array['producer', 'worker', 'operator', 'reader', 'archiver']) r(name),
	                 unnest(array['insert', 'update']) p(privilege)
	      where has_column_privilege('taskledger_test_' || r.name, c.oid, a.attnum, p.privilege))
	 order by 1, 2`

// No role but the services' own writes a moment that status and the services cannot read.
func TestUnreadableTimesAreRefused(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	rows, err := owner.Query(t.Context(), writableTimes)
	if err != nil {
		t.Fatal(err)
	}
	type column struct {
		Table, Name string
		IsChecked   bool
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil {
		t.Fatal(err)
	}
	if len(columns) < 8 {
		t.Errorf("only %v", columns)
	}
	for _, c := range columns {
		if !c.IsChecked {
			t.Errorf("no check of %s.%s", c.Table, c.Name)
		}
	}
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.pause (kind, actor, reason) values ('a', 'op', '');
		insert into taskledger.schedule (name, kind, every_ms, anchor, missed, missed_limit, overlap, actor)
		values ('a', 'a', 1000, now(), 'one', 1, 'allow', 'op');
		insert into taskledger.kind_limit (kind, max_waiting, policy, retry_after_ms, actor)
		values ('a', 1, 'reject', 0, 'op');
		select taskledger_internal.set_start_limit('a', '{a}', '{1}', null, 1, null, null, null, 'op');
		insert into taskledger.partition_weight (partition, weight, actor) values ('a', 2, 'op');
		insert into taskledger.token (id, name, role) values ('a', 'a', 'viewer')`)
	operator := ledgertest.As(t, owner, "operator", "worker")
	for _, c := range columns {
		for _, at := range []string{"infinity", "-infinity", "1899-12-31", "9999-01-01", "294000-01-01"} {
			statement := "update taskledger." + c.Table + " set " + c.Name + " = '" + at + "'"
			switch c.Table + "." + c.Name { // those that a role may only insert
			case "pause.since":
				statement = strings.ReplaceAll(
					"insert into taskledger.pause (kind, since, actor, reason) values ('b', '$', 'op', '')", "$", at)
			case "token.link_until":
				statement = strings.ReplaceAll(`
					insert into taskledger.token (id, name, hash, role, expires_at, link_until)
					values ('b', 'b', sha256('b'), 'viewer', now(), '$')`, "$", at)
			}
			if _, err := operator.Exec(t.Context(), statement); !pgerr.Is(err, "23514") {
				t.Errorf("%s: %v, want a check violation", statement, err)
			}
		}
	}
}

// Hot statements return when an event was recorded with date_part, whose result is a double: it must be exact.
func TestMicrosecondsAreExact(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	var wrong, moments int
	err := owner.QueryRow(t.Context(), `
		select count(*) filter (where (date_part('epoch', m.at) * 1e6)::bigint
		                           <> (extract(epoch from m.at) * 1e6)::bigint), count(*)
		  from (
		   select '2000-1-1Z'::timestamptz + i * '1h'::interval + i * 7919::bigint % 3600000003 * '1us'::interval as at
		     from generate_series(0, 920000) i) m
		 where m.at < '2106-01-01'`).Scan(&wrong, &moments)
	if err != nil {
		t.Fatal(err)
	}
	if wrong > 0 || moments < 900_000 {
		t.Errorf("%d of %d moments are not exact", wrong, moments)
	}
}
