package projector_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Events that do not fold are recorded once each, and the others of the page are projected.
func TestIllegalEventsAreRecorded(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for _, key := range []string{"coupon.send/1", "coupon.send/2"} {
		ledgertest.Enqueue(t, pool, ledgertest.Key(t, key), "")
	}
	project(t, pool)
	for version := range 2 { // twice: each page reads the history again
		ledgertest.ExecAsOwner(t, pool, `
			insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
			select $1::integer, 1, e.shard, 'succeeded', e.kind, e.biz_id
			  from taskledger.event e where e.biz_id = '1' and e.version = 1`, 5+version)
		ledgertest.Enqueue(t, pool, ledgertest.Key(t, "coupon.send/later-"+string(rune('a'+version))), "")
		project(t, pool)
	}
	illegal, err := projection.ReadIllegal(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	const want = `succeeded after state "available": the version must be 2, got 5`
	if illegal.Events != 1 || illegal.Since.IsZero() || !strings.HasSuffix(illegal.Last, want) {
		t.Errorf("got %+v, want one with %s", illegal, want)
	}
	var tasks int
	if err := pool.QueryRow(t.Context(), "select count(*) from taskledger.tasks").Scan(&tasks); err != nil {
		t.Fatal(err)
	}
	if tasks != 4 {
		t.Errorf("%d tasks are projected, want 4", tasks)
	}

	listed, err := projection.ListIllegal(t.Context(), pool, subscribers.EventName{}, 10)
	if err != nil || len(listed) != 1 || listed[0].Version != 5 || !strings.HasSuffix(listed[0].Reason, want) {
		t.Errorf("listed: %+v, %v", listed, err)
	}
	good, bad := ledgertest.Key(t, "coupon.send/2"), ledgertest.Key(t, "coupon.send/1")
	operator := ledgertest.As(t, pool, "operator")
	_, err = projection.DismissIllegal(t.Context(), operator, good, "alice", "")
	if !errors.Is(err, projection.ErrNotIllegal) {
		t.Errorf("a task without illegal events: %v, want ErrNotIllegal", err)
	}
	n, err := projection.DismissIllegal(t.Context(), operator, bad, "alice", "role corrected")
	if err != nil || n != 1 {
		t.Errorf("dismissed %d, %v", n, err)
	}
	var record string
	if err := pool.QueryRow(t.Context(), `
		select actor || ' ' || data from taskledger.event where kind = 'taskledger.operation' and version = 1`).
		Scan(&record); err != nil {
		t.Fatal(err)
	}
	const wantRecord = `alice {"action":"illegal.dismiss","reason":"role corrected","events":["coupon.send/1/5"]}`
	if record != wantRecord {
		t.Errorf("on record: %s, want %s", record, wantRecord)
	}

	rebuildTasks(t, pool)
	if illegal, err = projection.ReadIllegal(t.Context(), pool); err != nil || illegal.Events != 1 {
		t.Errorf("after a rebuild: %+v, %v, want the event on record again", illegal, err)
	}
}
