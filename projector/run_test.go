package projector_test

import (
	"encoding/json"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// The tables follow the runs of a task, however the pages of the feed divide them: the projector continues each row,
// and verify and the fold of all events agree.
func TestRunsAreProjected(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	keys := []ledger.Key{{Kind: "customer.resync", BizID: "1"}, {Kind: "customer.resync", BizID: "2"}}
	enqueue := func(k ledger.Key, o ledger.EnqueueOptions) {
		t.Helper()
		o.IfExists = ledger.IfExistsReplace
		if answer, err := ledger.Enqueue(t.Context(), pool, k, json.RawMessage(`1`), &o); err != nil || !answer.New {
			t.Fatalf("%s: %+v, %v", k, answer, err)
		}
	}
	steps := []func(ledger.Key){
		func(k ledger.Key) { enqueue(k, ledger.EnqueueOptions{RunIn: 1e12}) },
		func(k ledger.Key) { enqueue(k, ledger.EnqueueOptions{}) }, // a replacement
		func(k ledger.Key) { ledgertest.Append(t, pool, k, ledger.EventFailed, ledger.EventBuried) },
		func(k ledger.Key) { enqueue(k, ledger.EnqueueOptions{}) }, // the second run
		func(k ledger.Key) { ledgertest.Append(t, pool, k, ledger.EventStarted, ledger.EventSucceeded) },
		func(k ledger.Key) { enqueue(k, ledger.EnqueueOptions{RunIn: 1e12}) }, // the third run
	}
	for _, step := range steps {
		for _, k := range keys {
			step(k)
		}
		project(t, pool)
		for _, k := range keys {
			task, err := ledger.Load(t.Context(), pool, k)
			if err != nil {
				t.Fatal(err)
			}
			var state, message string
			var attempt, failures int
			err = pool.QueryRow(t.Context(), `select state::text, attempt, failures, coalesce(error, '')
				from taskledger.tasks where kind = $1 and biz_id = $2`, string(k.Kind), string(k.BizID)).
				Scan(&state, &attempt, &failures, &message)
			if err != nil || state != string(task.State) || attempt != int(task.Attempt) || failures != task.Failures ||
				message != task.Error {
				t.Errorf("%s: the row has %s, attempt %d, %d failures, error %q, %v",
					task, state, attempt, failures, message, err)
			}
		}
	}
	owner := ledgertest.As(t, pool, ledgertest.Owner)
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	report, err := projector.VerifyIn(t.Context(), tx)
	if err != nil || !report.Equal() {
		t.Errorf("%+v, %v", report, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	var enqueued int
	err = pool.QueryRow(t.Context(), `select sum(enqueued) from taskledger.kind_minutes`).Scan(&enqueued)
	if want := 3 * len(keys); err != nil || enqueued != want {
		t.Errorf("%d runs are counted as enqueued, want %d: %v", enqueued, want, err)
	}
}
