package ledger_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var permits = flag.Int("permits", 1_000, "permits in TestUseOfALimitDoesNotGrow")

// However many permits and tokens have been taken and returned, a limit's use and the removal of old rows read as many
// blocks as at first.
func TestUseOfALimitDoesNotGrow(t *testing.T) {
	t.Parallel()
	const tasks = 10
	db := gate(t, tasks, 0)
	owner := ledgertest.As(t, db, ledgertest.Owner)
	for _, l := range []ledger.StartLimit{
		{Name: "tenant", Per: "partition", MaxRunning: new(tasks)},
		{Name: "rate", Rate: &ledger.StartRate{Starts: 100_000, Period: time.Second, Burst: tasks}},
	} {
		l.Kinds = map[ledger.Kind]int{gated: 1}
		if err := ledger.SetStartLimit(t.Context(), db, l, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range tasks {
		o := &ledger.EnqueueOptions{Partition: fmt.Sprint("tenant-", i%2)}
		if _, err := ledger.Enqueue(t.Context(), db, gatedKey(i), nil, o); err != nil {
			t.Fatal(err)
		}
	}
	const insert = `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id, actor)
		select $1, $2, e.shard, $3, e.kind, e.biz_id, 'w'
		  from taskledger.event e
		 where e.kind = 'test.gated' and e.version = 1`
	version := 1
	use := func(n int) {
		for attempt := (version + 1) / 2; n > 0; n -= tasks {
			for _, e := range []ledger.EventType{ledger.EventStarted, ledger.EventInterrupted} {
				version++
				if _, err := owner.Exec(t.Context(), insert, version, attempt, e); err != nil {
					t.Fatal(err)
				}
			}
			attempt++
		}
		const tidy = "select taskledger_internal.remove_permits(1000) + taskledger_internal.tidy_tokens(1000)"
		for count(t, db, tidy) > 0 {
		}
		if _, err := owner.Exec(t.Context(), "vacuum (analyze) taskledger.permit, taskledger.start_token"); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	statements := []string{
		"select * from taskledger.limit_use",
		"select taskledger_internal.remove_permits(1000)",
		"select taskledger_internal.tidy_tokens(1000)",
	}
	blocks := func(statement string) int {
		n := buffers(t, conn, statement)
		for range 4 {
			n = min(n, buffers(t, conn, statement))
		}
		return n
	}
	use(*permits / 10)
	first := make([]int, len(statements))
	for i, s := range statements {
		first[i] = blocks(s)
	}
	for range 9 {
		use(*permits / 10)
	}
	for i, s := range statements {
		n := blocks(s)
		t.Logf("%s: %d blocks after %d permits, %d after a tenth of them", s, n, *permits, first[i])
		if n > 2*first[i]+20 {
			t.Error("it reads more with each permit")
		}
	}
}
