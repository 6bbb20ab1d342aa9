package servicetest

import (
	"cmp"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Order is the kind of most tests. In a child process it is the kind of its bundle.
var Order = ledger.MustKind[OrderArgs](ledger.Kind(cmp.Or(os.Getenv(kindVariable), "test.order")))

// OrderArgs are the args of [Order].
type OrderArgs struct {
	Amount int `json:"amount"`
}

// CreateEffects creates the table in which handlers insert their effects.
func (b *Bundle) CreateEffects() {
	b.T.Helper()
	b.Exec("create table effect (biz_id text not null, attempt integer not null, note text, " +
		"kind text not null default '" + string(Order.Name()) + "')")
}

// Enqueue enqueues a task of the bundle's kind.
func (b *Bundle) Enqueue(id string) ledger.Key {
	b.T.Helper()
	Try(b.kind.Enqueue(b.Context(), b.DB, ledger.BizID(id), OrderArgs{Amount: 7}, nil))(b.T)
	return ledger.Key{Kind: b.kind.Name(), BizID: ledger.BizID(id)}
}

// EnqueueMany enqueues tasks o-0000, o-0001 and so on.
func (b *Bundle) EnqueueMany(n int) {
	b.T.Helper()
	b.EnqueueRound("o", n)
}

// EnqueueRound enqueues tasks <round>-0000, <round>-0001 and so on.
func (b *Bundle) EnqueueRound(round string, n int) {
	b.T.Helper()
	var entries []ledger.Entry
	for i := range n {
		id := ledger.BizID(fmt.Sprintf("%s-%04d", round, i))
		entries = append(entries, Try(b.kind.Entry(id, OrderArgs{Amount: i}, nil))(b.T))
	}
	Try(ledger.EnqueueMany(b.Context(), b.DB, entries))(b.T)
}

// EnqueueIn enqueues a task of the bundle's kind and brings it into a state.
func (b *Bundle) EnqueueIn(s ledger.State, id string) ledger.Key {
	b.T.Helper()
	events := map[ledger.State][]ledger.EventType{
		ledger.StateAvailable: nil,
		ledger.StateScheduled: {ledger.EventSnoozed},
		ledger.StateRunning:   {ledger.EventStarted},
		ledger.StateRetrying:  {ledger.EventFailed},
		ledger.StateSucceeded: {ledger.EventSucceeded},
		ledger.StateDead:      {ledger.EventBuried},
		ledger.StateCancelled: {ledger.EventCancelled},
		ledger.StateExpired:   {ledger.EventExpired},
		ledger.StateDiscarded: {ledger.EventDiscarded},
	}
	k := ledger.Key{Kind: b.kind.Name(), BizID: ledger.BizID(id)}
	ledgertest.Enqueue(b.T, b.DB, k, `{}`)
	ledgertest.Append(b.T, b.DB, k, events[s]...)
	return k
}

// Later enqueues a task of kind test.later, for tests of timers.
func (b *Bundle) Later(id string, o ledger.EnqueueOptions) ledger.Key {
	b.T.Helper()
	k := ledger.Key{Kind: "test.later", BizID: ledger.BizID(id)}
	Try(ledger.Enqueue(b.Context(), b.DB, k, nil, &o))(b.T)
	return k
}

// SetLimit limits how many tasks of the bundle's kind may wait.
func (b *Bundle) SetLimit(maxWaiting int64, policy ledger.OverloadPolicy) {
	b.T.Helper()
	l := ledger.Limit{Kind: b.kind.Name(), MaxWaiting: maxWaiting, Policy: policy}
	if err := ledger.SetLimit(b.Context(), b.DB, l, ""); err != nil {
		b.T.Fatal(err)
	}
}

// History returns the events of a task.
func (b *Bundle) History(k ledger.Key) []ledger.Event {
	b.T.Helper()
	return Try(ledger.History(b.Context(), b.DB, k))(b.T)
}

// EventTypes returns the types of a task's events.
func (b *Bundle) EventTypes(k ledger.Key) []ledger.EventType {
	b.T.Helper()
	var types []ledger.EventType
	for _, e := range b.History(k) {
		types = append(types, e.Type)
	}
	return types
}

// Task returns a task.
func (b *Bundle) Task(k ledger.Key) ledger.Task {
	b.T.Helper()
	return Try(ledger.Load(b.Context(), b.DB, k))(b.T)
}

// AwaitState waits until a task is in a state.
func (b *Bundle) AwaitState(k ledger.Key, s ledger.State) {
	b.T.Helper()
	b.Await(fmt.Sprintf("%s to be %s", k, s), func() bool { return b.Task(k).State == s })
}

// AwaitSucceeded waits until n tasks have succeeded. It gives up when no other task succeeds for [Patience].
func (b *Bundle) AwaitSucceeded(n int) {
	b.T.Helper()
	for done := -1; done != n; {
		before := done
		b.Await(fmt.Sprintf("more than %d of %d tasks to succeed", before, n), func() bool {
			done = One[int](b, "select count(*)::integer from taskledger.event "+
				"where type = 'succeeded' and kind like $1", b.kinds)
			return done == n || before < done && done < n
		})
	}
}

// TasksIn returns the tasks of the bundle's kind that are in a state, by name.
func (b *Bundle) TasksIn(s ledger.State) []string {
	b.T.Helper()
	rows := Try(b.DB.Query(b.Context(), `select h.biz_id from (
		select distinct on (e.biz_id) e.biz_id, e.type
		  from taskledger.event e where e.kind = $1 order by e.biz_id, e.version desc) h
		where taskledger.state_after(h.type)::text = $2 order by 1`, string(b.kind.Name()), string(s)))(b.T)
	return Try(pgx.CollectRows(rows, pgx.RowTo[string]))(b.T)
}

// Effects returns how many effects a task had.
func (b *Bundle) Effects(k ledger.Key) int {
	b.T.Helper()
	return One[int](b, "select count(*)::integer from effect where kind = $1 and biz_id = $2",
		string(k.Kind), string(k.BizID))
}

// WantOneEffect checks that a task had exactly one effect.
func (b *Bundle) WantOneEffect(k ledger.Key) {
	b.T.Helper()
	if n := b.Effects(k); n != 1 {
		b.T.Errorf("%s: %d effects, want exactly one; events: %v", k, n, b.EventTypes(k))
	}
}

// WantOneEffectEach checks that n tasks had exactly one effect each, and no other task had one.
func (b *Bundle) WantOneEffectEach(n int) {
	b.T.Helper()
	total := One[int](b, "select count(*)::integer from effect where kind like $1", b.kinds)
	distinct := One[int](b, "select count(distinct biz_id)::integer from effect where kind like $1", b.kinds)
	if total != n || distinct != n {
		b.T.Errorf("%d effects of %d tasks, want one each of %d", total, distinct, n)
	}
}
