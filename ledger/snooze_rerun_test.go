package ledger_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A snooze of an earlier run is not the snooze before one of this run, even if its attempt has the number before.
func TestShortSnoozeOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, "producer", "worker", "operator")
	if _, err := pool.Exec(t.Context(), `select taskledger.heartbeat('sql', '{customer.resync}')`); err != nil {
		t.Fatal(err)
	}
	again := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	enqueue := func() {
		if _, err := enqueueAs(t, pool, resync, `1`, again); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(then string) {
		t.Helper()
		var version int
		err := pool.QueryRow(t.Context(),
			`select version from taskledger.claim('customer.resync', '17', 'sql')`).Scan(&version)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), then, version); err != nil {
			t.Fatal(err)
		}
	}
	const (
		snooze = `select taskledger.snooze('customer.resync', '17', $1::integer, run_in => '0')`
		finish = `select taskledger.finish('customer.resync', '17', $1::integer)`
		fail   = `select taskledger.fail('customer.resync', '17', $1::integer, 'no', retry_in => '0')`
	)
	enqueue()
	claim(snooze)
	ledgertest.Append(t, pool, resync, ledger.EventReleased)
	claim(finish)
	enqueue()
	claim(fail)
	claim(snooze)
	if data := string(lastData(t, pool, resync)); !strings.Contains(data, `"short_in_a_row":1`) {
		t.Errorf("the first short snooze of the run: %s", data)
	}
}

// lastData returns the data of a task's last event.
func lastData(t *testing.T, db ledger.DB, k ledger.Key) []byte {
	t.Helper()
	events, err := ledger.History(t.Context(), db, k)
	if err != nil {
		t.Fatal(err)
	}
	return events[len(events)-1].Data
}
