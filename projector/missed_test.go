package projector_test

import (
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// The projection handles events that the feed's audit delivers late, out of the order of their task. The last
// event of a task is applied, and an event before the row's version changes nothing.
func TestMissedEventsAreProjectedLate(t *testing.T) {
	t.Parallel()
	for name, hidden := range map[string]string{
		"the last event of a task":    "e.biz_id = '3' and e.version = 2",
		"the first event of a task":   "e.biz_id = '3' and e.version = 1",
		"several, and all come again": "e.biz_id in ('3', '5', '6') and e.version < 3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
			for _, id := range []ledger.BizID{"1", "2", "3", "4", "5", "6"} {
				ledgertest.Append(t, pool, ledger.Key{Kind: "k", BizID: id}, ledger.EventSucceeded)
			}
			var definition string
			if err := pool.QueryRow(t.Context(), `select pg_get_functiondef('taskledger_internal.feed_page'::regproc)`).
				Scan(&definition); err != nil {
				t.Fatal(err)
			}
			const top = "and e.position <= feed_page.top"
			spoiled := strings.Replace(definition, top, top+" and not ("+hidden+")", 1)
			if spoiled == definition {
				t.Fatal("the pages are not spoiled")
			}
			ledgertest.ExecAsOwner(t, pool, spoiled)
			defer start(t, projector.Config{DB: pool})()
			await(t, "every task projected as succeeded", func() bool {
				tasks, _, err := projector.ReadTasks(t.Context(), pool,
					projector.TaskFilter{State: ledger.StateSucceeded})
				return err == nil && len(tasks) == 6
			})
			// No event awaits its audit any more, so the projector applies nothing after the check.
			await(t, "the end of the audit", func() bool {
				var audited bool
				err := pool.QueryRow(t.Context(), `
					select unaudited = 0 from taskledger.cursor where reader = $1 order by n desc limit 1`,
					feed.ProjectorReader).Scan(&audited)
				return err == nil && audited
			})
			check(t, pool)
		})
	}
}
