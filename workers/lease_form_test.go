package workers_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// A worker cannot insert a malformed lease, nor change one into it. Readers skip a malformed lease that the owner has
// inserted.
func TestMalformedLeases(t *testing.T) {
	t.Parallel()
	const (
		insert = "insert into taskledger.lease (name, holder, since, alive_until, detail) values "
		row    = "('worker/evil', 'evil', now(), now() + '1 hour', "
		good   = insert + `('worker/good', 'good', now(), now() + '1 hour', '{"kinds":["a"],"shards":"all"}')`
	)
	owner := ledgertest.Pool(t, ledgertest.Owner)
	db := ledgertest.As(t, owner, "worker")
	if _, err := db.Exec(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]string{
		"kinds are a text":           row + `'{"kinds":"x"}')`,
		"kinds of numbers":           row + `'{"kinds":[1]}')`,
		"no kinds":                   row + `'{}')`,
		"no detail":                  row + `null)`,
		"an array":                   row + `'[]')`,
		"a character of zero":        row + `'{"kinds":[],"x":"\u0000"}')`,
		"shards are a number":        row + `'{"kinds":["b"],"shards":7}')`,
		"shards are words":           row + `'{"kinds":["b"],"shards":"most"}')`,
		"guarantees are a text":      row + `'{"kinds":["b"],"guarantees":"x"}')`,
		"an unknown guarantee":       row + `'{"kinds":["b"],"guarantees":{"often":["b"]}}')`,
		"a guarantee of a number":    row + `'{"kinds":["b"],"guarantees":{"at least once":[1]}}')`,
		"a guarantee without a list": row + `'{"kinds":["b"],"guarantees":{"at least once":"b"}}')`,
		"repeating is a text":        row + `'{"kinds":["b"],"repeating":"x"}')`,
		"repeating nothing":          row + `'{"kinds":["b"],"repeating":[{}]}')`,
		"repeating for ever": row +
			`'{"kinds":["b"],"repeating":[{"kind":"b","biz_id":"1","times":3,"since":"infinity"}]}')`,
		"repeating a task of another kind": row +
			`'{"kinds":["b"],"repeating":[{"kind":"c","biz_id":"1","times":3,"since":"2026-01-01T00:00:00Z"}]}')`,
		"alive for ever":      `('worker/evil', 'evil', now(), 'infinity', '{"kinds":[],"shards":"all"}')`,
		"alive for a century": `('worker/evil', 'evil', now(), now() + '100 years', '{"kinds":[],"shards":"all"}')`,
		"since ever":          `('worker/evil', 'evil', '-infinity', now() + '1 hour', '{"kinds":[],"shards":"all"}')`,
		"since the last year": `('worker/evil', 'evil', '294275-01-01', now(), '{"kinds":[],"shards":"all"}')`,
		"the name of another": `('worker/other', 'evil', now(), now() + '1 hour', '{"kinds":[],"shards":"all"}')`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := db.Exec(t.Context(), insert+values); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
				t.Errorf("%s: %v, want insufficient_privilege", values, err)
			}
			const change = "update taskledger.lease set (name, holder, since, alive_until, detail) = row"
			if _, err := db.Exec(t.Context(), change+values); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
				t.Errorf("change to %s: %v, want insufficient_privilege", values, err)
			}
			if _, err := owner.Exec(t.Context(), insert+values); err != nil {
				t.Fatal(err)
			}
			all, err := workers.ReadWorkers(t.Context(), db, "", lists.All)
			if err != nil || !hasWorker(all, "good") {
				t.Errorf("workers: %+v, %v", all, err)
			}
			if _, err := operator.ReadRepeated(t.Context(), owner); err != nil {
				t.Error(err)
			}
			var kinds int
			const read = "select (select count(kind) from taskledger_internal.worker_kinds where worker = 'good')" +
				" + 0 * (select count(alive_ms) from taskledger_internal.worker_alive_ms('evil', 'b'))"
			if err := owner.QueryRow(t.Context(), read).Scan(&kinds); err != nil || kinds != 1 {
				t.Errorf("%d kinds, %v, want that of the good worker", kinds, err)
			}
			if _, err := owner.Exec(t.Context(), "delete from taskledger.lease where holder <> 'good'"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// No lease of a worker lasts for longer than a day, whatever its term is called: as intervals, 1200 months less 35,999
// days equal a day.
func TestLeaseLastsADayAtMost(t *testing.T) {
	t.Parallel()
	db := ledgertest.As(t, ledgertest.Pool(t, ledgertest.Owner), "worker")
	const long = "interval '1200 months -35999 days'"
	for _, sql := range []string{
		"insert into taskledger.lease (name, holder, alive_until, term, detail) values " +
			"('worker/w', 'w', now() + " + long + ", " + long + `, '{"kinds":[]}')`,
		"select taskledger.heartbeat('w', '{}', " + long + ")",
	} {
		if _, err := db.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s is no error", sql)
		}
	}
	lasting := 0
	const read = "select count(*) from taskledger.lease where alive_until > now() + interval '1 day'"
	if err := db.QueryRow(t.Context(), read).Scan(&lasting); err != nil || lasting > 0 {
		t.Errorf("%d leases last for more than a day, %v", lasting, err)
	}
}

// A worker can write the leases of workers only.
func TestWorkersWriteNoOtherLeases(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	db := ledgertest.As(t, owner, "worker")
	const insert = `
		insert into taskledger.lease (name, holder, since, alive_until, detail)
		values ('broker/x:6222', 'x', 'infinity', '-infinity', '{}')`
	if _, err := db.Exec(t.Context(), insert); !pgerr.Is(err, pgerr.InsufficientPrivilege) {
		t.Errorf("insert: %v, want insufficient_privilege", err)
	}
	if _, err := owner.Exec(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	const change = "update taskledger.lease set detail = '{}' where name = 'broker/x:6222'"
	if tag, err := db.Exec(t.Context(), change); err != nil || tag.RowsAffected() != 0 {
		t.Errorf("update: %d rows, %v, want none", tag.RowsAffected(), err)
	}
}

// hasWorker reports whether all contains a worker with this id.
func hasWorker(all []workers.Worker, id string) bool {
	for _, w := range all {
		if w.ID == id && len(w.Kinds) == 1 {
			return true
		}
	}
	return false
}
