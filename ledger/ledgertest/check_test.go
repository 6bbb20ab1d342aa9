package ledgertest_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestCheckAcceptsEveryWayOfATask(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	ways := map[string][]ledger.EventType{
		"quick":     {ledger.EventSucceeded},
		"slow":      {ledger.EventStarted, ledger.EventProgressed, ledger.EventSucceeded},
		"retried":   {ledger.EventFailed, ledger.EventReleased, ledger.EventStarted, ledger.EventStarted, ledger.EventBuried, ledger.EventReleased},
		"snoozed":   {ledger.EventSnoozed, ledger.EventExpired},
		"cancelled": {ledger.EventInterrupted, ledger.EventCancelled},
		"discarded": {ledger.EventDiscarded},
		"new":       nil,
	}
	for id, types := range ways {
		ledgertest.Append(t, pool, ledgertest.Key(t, "check.way/"+id), types...)
	}
	ledgertest.Check(t, pool)
}

// Each of these inserts what no call of package ledger would, beside a healthy task.
func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const insert = `insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data, meta) `
	for _, test := range []struct{ name, sql, want string }{
		{"gap", insert + `values (1, 0, 0, 'enqueued', 'k', 'b', null, null), (3, 1, 0, 'succeeded', 'k', 'b', null, null)`, "versions have a gap"},
		{"no first event", insert + `values (2, 0, 0, 'succeeded', 'k', 'b', null, null)`, "versions have a gap"},
		{"wrong first event", insert + `values (1, 1, 0, 'started', 'k', 'b', null, null)`, "the transition does not exist"},
		{"transition", insert + `values (1, 0, 0, 'enqueued', 'k', 'b', null, null), (2, 1, 0, 'succeeded', 'k', 'b', null, null), (3, 2, 0, 'started', 'k', 'b', null, null)`, "the transition does not exist"},
		{"attempt", insert + `values (1, 0, 0, 'enqueued', 'k', 'b', null, null), (2, 2, 0, 'started', 'k', 'b', null, null)`, "the attempt is out of step"},
		{"shard changes", insert + `values (1, 0, 7, 'enqueued', 'k', 'b', null, null), (2, 1, 8, 'started', 'k', 'b', null, null)`, "shard 8 of a task in shard 7"},
		{"shard out of range", insert + `values (1, 0, 64, 'enqueued', 'k', 'b', null, null)`, "must be 0 to 63"},
		{"position", insert + `values (2, 1, 0, 'started', 'k', 'b', null, null), (1, 0, 0, 'enqueued', 'k', 'b', null, null)`, "position 2 after 3"},
		{"kind", insert + `values (1, 0, 0, 'enqueued', 'a b', 'b', null, null)`, "invalid kind"},
		{"payload", insert + `values (1, 0, 0, 'enqueued', 'k', 'b', '{}', '{"encoding": "base64"}')`, "corrupt base64 payload"},
		{"meta", insert + `values (1, 0, 0, 'enqueued', 'k', 'b', '{}', '[]')`, "corrupt meta"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			ledgertest.Enqueue(t, pool, ledgertest.Key(t, "check.healthy/1"), "")
			if _, err := pool.Exec(t.Context(), test.sql); err != nil {
				t.Fatal(err)
			}
			recorder := &recorder{TB: t}
			ledgertest.Check(recorder, pool)
			if got := recorder.said.String(); !strings.Contains(got, test.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("said %q, want one line with %q", got, test.want)
			}
		})
	}
}
