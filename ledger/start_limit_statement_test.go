package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

// insertStarts inserts the starts of tasks in one statement. The setting that names the statement's first start is set
// to the position of the given task's last event before each row; -1: it is not set.
func insertStarts(t *testing.T, db ledger.DB, hint int, tasks ...int) error {
	t.Helper()
	ids := make([]string, len(tasks))
	for i, n := range tasks {
		ids[i] = string(gatedKey(n).BizID)
	}
	var of *string
	if hint >= 0 {
		id := string(gatedKey(hint).BizID)
		of = &id
	}
	_, err := db.Exec(t.Context(), `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, order_key, actor)
		select 2, 1, e.shard, 'started', e.kind, e.biz_id, e.order_key, 'w'
		  from unnest($1::text[]) with ordinality u(biz_id, i)
		  join taskledger.event e on e.kind = $2 and e.biz_id = u.biz_id and e.version = 1
		 where $3::text is null or set_config('taskledger.first_start', (
		         select max(h.position)::text from taskledger.event h where h.kind = $2 and h.biz_id = $3), false) <> ''
		 order by u.i`, ids, string(gated), of)
	return err
}

// The first start of a statement takes the permits of all. A session that names another start as the first, of another
// statement, of another transaction or of the same statement, starts no more tasks than the limit allows.
func TestForgedFirstStart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		start func(t *testing.T, tx pgx.Tx) error // of four tasks
	}{
		{name: "one statement", start: func(t *testing.T, tx pgx.Tx) error {
			return insertStarts(t, tx, -1, 1, 2, 3, 4)
		}},
		{name: "start of another transaction", start: func(t *testing.T, tx pgx.Tx) error {
			return insertStarts(t, tx, 0, 1, 2, 3, 4)
		}},
		{name: "start of another statement", start: func(t *testing.T, tx pgx.Tx) error {
			return errors.Join(insertStarts(t, tx, -1, 1, 2), insertStarts(t, tx, 1, 3), insertStarts(t, tx, 1, 4))
		}},
		{name: "last start of the statement", start: func(t *testing.T, tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `
				select set_config('taskledger.first_start', (max(e.position) + 4)::text, false)
				  from taskledger.event e`); err != nil {
				return err
			}
			return insertStarts(t, tx, -1, 1, 2, 3, 4)
		}},
		{name: "another event of the statement", start: func(t *testing.T, tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `
				with hint as materialized (
				  select set_config('taskledger.first_start', (max(e.position) + 1)::text, false)
				    from taskledger.event e)
				insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor)
				select 2, case u.i when 1 then 0 else 1 end, e.shard,
				       (case u.i when 1 then 'cancelled' else 'started' end)::taskledger.event_type,
				       e.kind, e.biz_id, 'w'
				  from hint cross join unnest($1::text[]) with ordinality u(biz_id, i)
				  join taskledger.event e on e.kind = $2 and e.biz_id = u.biz_id and e.version = 1
				 order by u.i`, []string{
				string(gatedKey(5).BizID), string(gatedKey(1).BizID), string(gatedKey(2).BizID),
				string(gatedKey(3).BizID), string(gatedKey(4).BizID)}, string(gated))
			return err
		}},
		{name: "after a savepoint", start: func(t *testing.T, tx pgx.Tx) error {
			err := pgx.BeginFunc(t.Context(), tx, func(inner pgx.Tx) error {
				return errors.Join(insertStarts(t, inner, -1, 1, 2), errRolledBack)
			})
			if !errors.Is(err, errRolledBack) {
				return err
			}
			return insertStarts(t, tx, 0, 1, 2, 3, 4)
		}},
		{name: "each alone", start: func(t *testing.T, tx pgx.Tx) error {
			for i := 1; i < 4; i++ {
				if err := insertStarts(t, tx, i-1, i); err != nil {
					t.Fatal(err)
				}
			}
			return insertStarts(t, tx, 3, 4)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := gate(t, 4, 6)
			mustAppend(t, db, 0, 1, ledger.EventStarted)
			err := test.start(t, begin(t, db, pgx.TxOptions{}))
			if !pgerr.Is(err, pgerr.StartLimit) {
				t.Fatalf("a fifth start: %v, want a refusal", err)
			}
			tx := begin(t, db, pgx.TxOptions{})
			if err := insertStarts(t, tx, 0, 1, 2, 3); err != nil {
				t.Fatal(err)
			}
			mustCommit(t, tx)
			mustBeFull(t, db, 5, 1)
		})
	}
}

// A statement takes the permits and tokens of all its starts, of all kinds and values, with first starts and
// take-overs.
func TestStartsOfOneStatement(t *testing.T) {
	t.Parallel()
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			db := ordered(t, 12) // in turn of two order keys
			setLimit(t, db, ledger.StartLimit{
				Per: ledger.PerOrderKey, MaxRunning: new(3), Rate: &ledger.StartRate{Starts: 4, Period: time.Hour}})
			tx := begin(t, db, pgx.TxOptions{IsoLevel: isolation})
			if err := insertStarts(t, tx, -1, 0, 1, 2, 3, 4, 5); err != nil {
				t.Fatal(err)
			}
			mustCommit(t, tx)
			counts := []int64{
				count(t, db, "select count(distinct (value, slot)) from taskledger.permits"),
				count(t, db, "select count(distinct biz_id) from taskledger.permits"),
				count(t, db, "select count(*) from taskledger_internal.recent_starts"),
			}
			if counts[0] != 6 || counts[1] != 6 || counts[2] != 6 {
				t.Errorf("slots, tasks and tokens of six starts: %v", counts)
			}
			mustBeFull(t, db, 6, 1)
			for i := range 6 {
				mustAppend(t, db, i, 2, ledger.EventSucceeded)
			}
			if err := insertStarts(t, db, -1, 6, 8); !pgerr.Is(err, pgerr.StartLimit) {
				t.Errorf("two starts with one token: %v, want a refusal", err)
			}
			if err := insertStarts(t, db, -1, 6, 7); err != nil {
				t.Errorf("a start of each value: %v", err)
			}
		})
	}
}

// If a limit refuses starts of a group, the group's ends are sent first: together, so that their permits come back.
func TestEndsOfAGroupComeBeforeRefusedStarts(t *testing.T) {
	t.Parallel()
	db := gate(t, 2, 10)
	mustAppend(t, db, 0, 1, ledger.EventStarted)
	mustAppend(t, db, 9, 1, ledger.EventStarted)
	requests := []ledger.AppendRequest{
		{Key: gatedKey(0), Expected: 2, Type: ledger.EventSucceeded, Actor: "w"},
		{Key: gatedKey(9), Expected: 2, Type: ledger.EventSucceeded, Actor: "w"},
	}
	for i := 1; i < 9; i++ {
		requests = append(requests,
			ledger.AppendRequest{Key: gatedKey(i), Expected: 1, Type: ledger.EventStarted, Actor: "w"})
	}
	refused := 0
	for i, r := range ledger.AppendEach(t.Context(), db, requests) {
		switch {
		case errors.Is(r.Err, ledger.ErrStartLimit) && i >= 2:
			refused++
		case r.Err != nil:
			t.Fatal(r.Err)
		}
	}
	if refused != 6 {
		t.Errorf("%d of 8 starts were refused, want 6: two have the permits of the tasks that ended", refused)
	}
	if n := count(t, db, "select count(distinct xid) from taskledger.event where type = 'succeeded'"); n != 1 {
		t.Errorf("the ends took %d transactions", n)
	}
}

// The setting that names the slots to begin with is only a hint, whatever a session writes there.
func TestForgedSlots(t *testing.T) {
	t.Parallel()
	for name, hint := range map[string]string{
		"rows far above": "{}\x1f9000000000000000000", "rows far below": "{}\x1f-9000000000000000000",
		"no rows": "{}", "slots that do not exist": "{7,8,9}\x1f5",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := gate(t, 4, 9)
			for round := range 2 {
				tx := begin(t, db, pgx.TxOptions{})
				_, err := tx.Exec(t.Context(), "select set_config('taskledger.slots', $1, false)",
					string(gated)+"\x1f\x1f1\x1f"+hint)
				if err != nil {
					t.Fatal(err)
				}
				if err := insertStarts(t, tx, -1, 4*round, 4*round+1, 4*round+2, 4*round+3); err != nil {
					t.Fatal(err)
				}
				mustCommit(t, tx)
				mustBeFull(t, db, 8, 1)
				for i := range 4 {
					mustAppend(t, db, 4*round+i, 2, ledger.EventSucceeded)
				}
			}
		})
	}
}
