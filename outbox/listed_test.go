package outbox_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// listedSQL moves the projector's cursor to the present, with the mark of a list up to a place.
const listedSQL = `
	insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, mark)
	select 'projector', coalesce((select max(n) from taskledger.cursor where reader = 'projector'), 0) + 1,
	       e.seen, e.top, pg_current_xact_id(), taskledger.origin(),
	       json_build_object('listed', json_build_object('seen', json_build_object(%s)))
	  from (select pg_current_snapshot() as seen,
	               pg_sequence_last_value('taskledger.event_position_seq'::regclass) as top) e;`

// The stream is lost, and while the relay reads the projector's list of unfinished tasks, a rebuild replaces the list
// by one that is being made from the first event on. All unfinished tasks are on the stream again. Not parallel: the
// fault is of the whole process.
func TestListIsReplacedDuringARepair(t *testing.T) {
	b := newBundle(t)
	r := b.relay()
	const tasks = 1000
	b.enqueue("coupon.send", "order-", tasks)
	b.awaitPublished()
	r.end()
	b.forget()
	b.list()

	replace := sync.OnceFunc(func() {
		beginning := `'snapshot', '3:3:', 'top', 0, 'bound', '3'`
		ledgertest.ExecAsOwner(t, b.pool,
			fmt.Sprintf(listedSQL, beginning)+`update taskledger.task set lingering = null`)
	})
	var published int
	t.Cleanup(fault.Set(outbox.FaultPublished, func() {
		if published++; published == 2 {
			replace()
		}
	}))
	b.relay()
	b.await("the generation is 2", func() bool { return b.generation() == 2 })
	b.awaitPublished()
	onStream := make(map[string]bool)
	for _, d := range b.deliveries() {
		if strings.HasPrefix(string(d.BizID), "order-") {
			onStream[d.ID()] = true
		}
	}
	if published < 2 || len(onStream) != tasks {
		t.Errorf("%d of %d unfinished tasks are on the stream after %d steps", len(onStream), tasks, published)
	}
}
