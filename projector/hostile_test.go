package projector_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// hostileValues are JSON values that producers and workers may write by themselves.
var hostileValues = []string{
	`"a\u0000b"`, `"\ud800"`, `"0000-06-01T00:00:00Z"`, `"0001-01-01T00:00:00+14:00"`, `"9999-12-31T23:59:59-12:00"`,
	`"10000-01-01T00:00:00Z"`, `"infinity"`, `1e99999`, `-1e400`, `[[[[]]]]`, `{"message": "\u0000", "message": 5}`,
	`{"message": "` + strings.Repeat("x", 500) + `\u0000"}`, `null`, `true`, `""`, `"{\"}"`,
}

// Whatever a producer or a worker writes into an event that it may append, the projector goes on.
func TestHostileEventsStopNoProjector(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	producer, worker := ledgertest.As(t, pool, "producer"), ledgertest.As(t, pool, "worker")
	members := []string{"error", "reason", "run_at", "due_at", "retry_at", "until", "start_by", "finish_by", "retry",
		"worker", "started_at", "duration_ms", "class", "fingerprint", "actor", "guarantee", "wait", "times"}
	document := func(value string) string {
		var all []string
		for _, member := range members {
			all = append(all, fmt.Sprintf("%q: %s", member, value))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	const insertSQL = `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data, meta)
		values ('pay', $1, $2, $3, taskledger.shard_of($1), $4::text::taskledger.event_type, $5, $6::text::json,
		        $7::text::json)`
	appended := 0
	for i, value := range hostileValues {
		for _, first := range []string{"enqueued", "scheduled"} {
			id := fmt.Sprintf("%s-%d", first, i)
			_, err := producer.Exec(t.Context(), insertSQL, id, 1, 0, first, "p", value, document(value))
			if err != nil {
				t.Fatalf("%s with %s: %v", first, value, err)
			}
		}
		for _, last := range []string{
			"succeeded", "failed", "buried", "snoozed", "interrupted", "discarded", "progressed",
		} {
			id := fmt.Sprintf("%s-%d", last, i)
			ledgertest.Enqueue(t, pool, ledger.Key{Kind: "pay", BizID: ledger.BizID(id)}, "")
			_, err := worker.Exec(t.Context(), insertSQL, id, 2, 1, "started", "w-1", document(value), document(value))
			if err == nil {
				_, err = worker.Exec(t.Context(), insertSQL, id, 3, 1, last, "w-1", document(value), value)
			}
			if err != nil {
				t.Fatalf("%s with %s: %v", last, value, err)
			}
			appended++
		}
	}
	project(t, pool)
	check(t, pool)
	rebuildTasks(t, pool)
	check(t, pool)
	if appended != len(hostileValues)*7 {
		t.Errorf("%d events were appended", appended)
	}
}

// A row that a program inserted by hand is replaced when its task comes: the projector finds it and goes on.
func TestForeignRowsStopNoProjector(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.ExecAsOwner(t, pool, `
		insert into taskledger.task
		       (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at)
		values ('pay', '2', 0, 'available', null, 1, 0, 0, now(), now())`)
	for _, key := range []string{"pay/1", "pay/2", "pay/3"} {
		ledgertest.Enqueue(t, pool, ledgertest.Key(t, key), "")
	}
	project(t, pool)
	var tasks int
	if err := pool.QueryRow(t.Context(), "select count(*) from taskledger.tasks").Scan(&tasks); err != nil {
		t.Fatal(err)
	}
	if tasks != 3 {
		t.Errorf("%d tasks are projected, want 3", tasks)
	}
}
