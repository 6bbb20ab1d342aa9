package ledgertest_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestCheckAcceptsEveryHistory(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner) // no role may append all of them
	histories := map[string][]ledger.EventType{
		"quick": {ledger.EventSucceeded},
		"slow":  {ledger.EventStarted, ledger.EventProgressed, ledger.EventSucceeded},
		"retried": {
			ledger.EventFailed, ledger.EventReleased, ledger.EventStarted, ledger.EventStarted, ledger.EventBuried,
			ledger.EventReleased,
		},
		"snoozed":   {ledger.EventSnoozed, ledger.EventExpired},
		"cancelled": {ledger.EventInterrupted, ledger.EventCancelled},
		"discarded": {ledger.EventDiscarded},
		"new":       nil,
	}
	for id, types := range histories {
		ledgertest.Append(t, pool, ledgertest.Key(t, "check.history/"+id), types...)
	}
	ledgertest.Check(t, pool)
}

// Each case inserts rows that package ledger never inserts, next to a valid task.
func TestCheckReportsTheFault(t *testing.T) {
	t.Parallel()
	const insert = `insert into taskledger.event (version, attempt, shard, type, kind, biz_id, data, meta) values `
	for _, test := range []struct{ name, rows, want string }{
		{
			name: "gap",
			rows: `(1, 0, 0, 'enqueued', 'k', 'b', null, null), (3, 1, 0, 'succeeded', 'k', 'b', null, null)`,
			want: "the version must be 2, got 3",
		},
		{
			name: "no first event",
			rows: `(2, 0, 0, 'succeeded', 'k', 'b', null, null)`,
			want: "the version must be 1, got 2",
		},
		{
			name: "wrong first event",
			rows: `(1, 1, 0, 'started', 'k', 'b', null, null)`,
			want: "the transition does not exist",
		},
		{
			name: "transition",
			rows: `(1, 0, 0, 'enqueued', 'k', 'b', null, null), (2, 1, 0, 'succeeded', 'k', 'b', null, null),
			       (3, 2, 0, 'started', 'k', 'b', null, null)`,
			want: "the transition does not exist",
		},
		{
			name: "attempt",
			rows: `(1, 0, 0, 'enqueued', 'k', 'b', null, null), (2, 2, 0, 'started', 'k', 'b', null, null)`,
			want: "the attempt must be 1, got 2",
		},
		{
			name: "shard changes",
			rows: `(1, 0, 7, 'enqueued', 'k', 'b', null, null), (2, 1, 8, 'started', 'k', 'b', null, null)`,
			want: "shard must be 7 as in the first event, got 8",
		},
		{
			name: "shard out of range",
			rows: `(1, 0, 64, 'enqueued', 'k', 'b', null, null)`,
			want: "must be between 0 and 63",
		},
		{
			name: "position",
			rows: `(2, 1, 0, 'started', 'k', 'b', null, null), (1, 0, 0, 'enqueued', 'k', 'b', null, null)`,
			want: "position must be greater than 3, got 2",
		},
		{
			name: "kind",
			rows: `(1, 0, 0, 'enqueued', 'a b', 'b', null, null)`,
			want: "invalid kind",
		},
		{
			name: "payload",
			rows: `(1, 0, 0, 'enqueued', 'k', 'b', '{}', '{"encoding": "base64"}')`,
			want: "corrupt base64 payload",
		},
		{
			name: "meta",
			rows: `(1, 0, 0, 'enqueued', 'k', 'b', '{}', '[]')`,
			want: "corrupt meta",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.Owner)
			ledgertest.Enqueue(t, pool, ledgertest.Key(t, "check.healthy/1"), "")
			if _, err := pool.Exec(t.Context(), insert+test.rows); err != nil {
				t.Fatal(err)
			}
			recorder := &recorder{TB: t}
			ledgertest.Check(recorder, pool)
			if got := recorder.log.String(); !strings.Contains(got, test.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("logged %q, want one line with %q", got, test.want)
			}
		})
	}
}
