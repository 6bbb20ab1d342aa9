package shards

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A login takes no shards of a live worker of another login, whatever its statement, and gives that worker none. It
// takes shards whose worker has no live lease, also if another lease of that worker is alive.
func TestShardsOfAnotherLogin(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	db := ledgertest.As(t, owner, "worker")
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.lease (name, holder, alive_until, login, detail) values
		  ('shards/theirs', 'theirs', now() + interval '1 hour', 'another', '{"kinds":["pay"]}'),
		  ('worker/halted', 'halted', now() + interval '1 hour', 'another', '{"kinds":["pay"]}'),
		  ('shards/halted', 'halted', now() - interval '1 second', 'another', '{"kinds":["pay"]}')`)
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.shard_owner (kind, shards, worker) values
		  ('pay', '0-15', 'theirs'), ('pay', '16-31', 'halted'), ('pay', '32-47', 'lost')`)
	mine := `insert into taskledger.lease (name, holder, alive_until, detail)
	         values ('shards/mine', 'mine', now() + interval '1 day', '{"kinds":["pay"]}')`
	if _, err := db.Exec(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"update taskledger.shard_owner set worker = 'mine' where shards = '0-15'",
		"update taskledger.shard_owner set worker = 'nobody', since = '9999-01-01' where shards = '0-15'",
		"update taskledger.shard_owner set since = now() where shards = '0-15'",
		"update taskledger.shard_owner set worker = 'theirs' where shards = '32-47'",
		"insert into taskledger.shard_owner (kind, shards, worker) values ('pay', '48-63', 'theirs')",
		`insert into taskledger.shard_owner (kind, shards, worker) values ('pay', '0-15', 'mine')
		 on conflict (kind, shards) do update set worker = excluded.worker`,
		"select taskledger.leave_shards('theirs', '', '')",
	} {
		if _, err := db.Exec(t.Context(), statement); err != nil && !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s: %v", statement, err)
		}
		if found, want := owned(t, owner), "0-15 theirs,16-31 halted,32-47 lost"; found != want {
			t.Fatalf("%s: the owners are %s, want %s", statement, found, want)
		}
	}
	var wanted []group
	for _, set := range divide(4) {
		wanted = append(wanted, group{"pay", set})
	}
	d := New(Config{DB: db, Worker: "mine", Groups: 4})
	taken, err := d.take(t.Context(), wanted)
	if err != nil || len(taken) != 3 {
		t.Errorf("it took %v, %v; want the three groups that are free", taken, err)
	}
	if found, want := owned(t, owner), "0-15 theirs,16-31 mine,32-47 mine,48-63 mine"; found != want {
		t.Errorf("the owners are %s, want %s", found, want)
	}
	if err := d.leave(t.Context(), group{"pay", ledger.ShardRange(16, 31)}); err != nil {
		t.Error(err)
	}
	if found, want := owned(t, owner), "0-15 theirs,32-47 mine,48-63 mine"; found != want {
		t.Errorf("the owners are %s, want %s", found, want)
	}
}

// owned returns the owners of shards.
func owned(t *testing.T, db *pgxpool.Pool) string {
	t.Helper()
	rows, err := db.Query(t.Context(), "select shards || ' ' || worker from taskledger.shard_owner order by shards")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, ",")
}
