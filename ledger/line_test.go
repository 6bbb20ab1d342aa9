package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// line is a test of lines.
type line struct {
	*testing.T

	db     *pgxpool.Pool // of producers, workers and operators
	keeper *pgxpool.Pool
}

const customer = "customer/17"

func newLine(t *testing.T) *line {
	t.Helper()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	return &line{t, ledgertest.As(t, owner, "producer", "worker", "operator"), ledgertest.As(t, owner, "relay")}
}

// lineKey returns the key of a task. Tasks of a line are of two kinds.
func lineKey(id string) ledger.Key {
	return ledger.Key{Kind: ledger.Kind("line." + strings.ToLower(id[:1])), BizID: ledger.BizID(id)}
}

// enqueue enqueues tasks in the line of customer, each in a transaction of its own.
func (l *line) enqueue(o ledger.EnqueueOptions, ids ...string) {
	l.Helper()
	for _, id := range ids {
		l.enqueueIn(l.db, o, id)
	}
}

func (l *line) enqueueIn(db ledger.DB, o ledger.EnqueueOptions, id string) {
	l.Helper()
	if o.OrderKey == "" {
		o.OrderKey = customer
	}
	if _, err := ledger.Enqueue(l.Context(), db, lineKey(id), json.RawMessage(`{}`), &o); err != nil {
		l.Fatal(err)
	}
}

// advance advances lines, and returns the number of turns.
func (l *line) advance(keys ...string) (turns int) {
	l.Helper()
	turns, err := l.tryAdvance(keys...)
	if err != nil {
		l.Fatal(err)
	}
	return turns
}

func (l *line) tryAdvance(keys ...string) (turns int, err error) {
	if len(keys) == 0 {
		keys = []string{customer}
	}
	err = pgx.BeginTxFunc(l.Context(), l.keeper, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.QueryRow(l.Context(), "select count(*) from taskledger_internal.advance_lines($1::text::text[])",
			pgarray.Of(keys...)).Scan(&turns)
	})
	return turns, err
}

// append appends events to a task.
func (l *line) append(id string, types ...ledger.EventType) {
	l.Helper()
	for _, t := range types {
		task := loaded(l.T, l.db, lineKey(id))
		r := ledgertest.Request(task.Key, task.Version, t)
		if _, err := ledger.Append(l.Context(), l.db, r); err != nil {
			l.Fatalf("%s after %s: %v", t, task, err)
		}
	}
}

// states returns the tasks with their states, such as "a1 available, b2 in_line".
func (l *line) states(ids ...string) string {
	l.Helper()
	var all []string
	for _, id := range ids {
		all = append(all, id+" "+string(loaded(l.T, l.db, lineKey(id)).State))
	}
	return strings.Join(all, ", ")
}

// want fails unless the tasks have these states after the line was advanced.
func (l *line) want(states string) {
	l.Helper()
	l.advance()
	var ids []string
	for task := range strings.SplitSeq(states, ", ") {
		id, _, _ := strings.Cut(task, " ")
		ids = append(ids, id)
	}
	if diff := difference.Of(states, l.states(ids...)); diff != "" {
		l.Errorf("(-want +got)\n%s", diff)
	}
	if turns := l.advance(); turns != 0 {
		l.Errorf("%d more turns", turns)
	}
}

// The tasks of a line get their turns one after another, in the order of their positions. An attempt that has not ended
// for good keeps the turn.
func TestLineGoesOnWhenATaskHasEnded(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enqueue(ledger.EnqueueOptions{}, "a1", "b2", "a3", "b4", "a5", "b6")
	l.enqueue(ledger.EnqueueOptions{OrderKey: "customer/18"}, "c1")
	l.want("a1 available, b2 in_line, a3 in_line, c1 in_line")
	l.append("a1", ledger.EventStarted)
	l.want("a1 running, b2 in_line")
	l.append("a1", ledger.EventFailed)
	l.want("a1 retrying, b2 in_line")
	l.append("a1", ledger.EventReleased)
	l.want("a1 available, b2 in_line")
	l.append("a1", ledger.EventSnoozed)
	l.want("a1 scheduled, b2 in_line")
	l.append("a1", ledger.EventReleased, ledger.EventStarted, ledger.EventInterrupted)
	l.want("a1 available, b2 in_line")
	l.append("a1", ledger.EventSucceeded)
	l.want("a1 succeeded, b2 available, a3 in_line")
	l.append("b2", ledger.EventCancelled)
	l.append("b4", ledger.EventCancelled) // in line
	l.want("b2 cancelled, a3 available, b4 cancelled, a5 in_line")
	l.append("a3", ledger.EventDiscarded)
	l.want("a3 discarded, a5 available, b6 in_line")
	l.append("a5", ledger.EventExpired)
	l.want("a5 expired, b6 available")
	l.append("b6", ledger.EventSucceeded)
	l.want("b6 succeeded, c1 in_line")
	l.enqueue(ledger.EnqueueOptions{}, "a7")
	l.want("a7 available")
	if turns := l.advance("customer/18", "customer/17", "no line", "customer/18"); turns != 1 {
		t.Errorf("%d turns", turns)
	}
	ledgertest.Check(t, l.db)
}

// The tasks of a batch stand in line in the order of its entries, in Go and in SQL, whatever their keys are.
func TestBatchStandsInLineInItsOrder(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	var entries []ledger.Entry
	for _, id := range []string{"b9", "a5", "b1"} {
		entries = append(entries, ledger.Entry{Key: lineKey(id), Options: &ledger.EnqueueOptions{OrderKey: customer}})
	}
	if _, err := ledger.EnqueueMany(t.Context(), l.db, entries); err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.Exec(t.Context(), `select taskledger.enqueue_many('[
		{"kind":"line.b","biz_id":"b8","order_key":"customer/17"},
		{"kind":"line.a","biz_id":"a4","order_key":"customer/17"},
		{"kind":"line.b","biz_id":"b0","order_key":"customer/17"}]')`); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"b9", "a5", "b1", "b8", "a4", "b0"} {
		l.want(id + " available")
		l.append(id, ledger.EventSucceeded)
	}
	ledgertest.Check(t, l.db)
}

// A dead task stops its line. After its release it is next, wherever others stand.
func TestDeadTaskStopsItsLine(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enqueue(ledger.EnqueueOptions{}, "a1", "a2", "a3")
	l.want("a1 available, a2 in_line")
	l.append("a1", ledger.EventFailed, ledger.EventBuried)
	l.want("a1 dead, a2 in_line")
	l.append("a1", ledger.EventReleased)
	if got := l.states("a1"); got != "a1 in_line" {
		t.Error(got)
	}
	l.want("a1 available, a2 in_line")
	l.append("a1", ledger.EventBuried, ledger.EventReleased, ledger.EventCancelled) // the line goes on without it
	l.want("a1 cancelled, a2 available, a3 in_line")
	l.append("a2", ledger.EventBuried)
	l.enqueue(ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}, "a2") // to the end of the line
	l.want("a2 in_line, a3 available")
	l.append("a3", ledger.EventSucceeded)
	l.want("a2 available, a3 succeeded")
	ledgertest.Check(t, l.db)
}

// A dead task with PassIfDead does not stop its line. After its release it stands at the end.
func TestDeadTaskIsPassed(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enqueue(ledger.EnqueueOptions{PassIfDead: true, Meta: ledger.Meta{Tags: []string{"x"}}}, "a1")
	l.enqueue(ledger.EnqueueOptions{}, "a2", "a3")
	l.want("a1 available, a2 in_line")
	l.append("a1", ledger.EventBuried)
	l.want("a1 dead, a2 available, a3 in_line")
	l.append("a1", ledger.EventReleased)
	l.want("a1 in_line, a2 available, a3 in_line")
	l.append("a2", ledger.EventSucceeded)
	l.want("a1 in_line, a2 succeeded, a3 available")
	l.append("a3", ledger.EventSucceeded)
	l.want("a1 available")
	ledgertest.Check(t, l.db)
}

// A rescheduled task gives up its place, and its turn. It lines up again when it is due, as a task that was enqueued
// for later does.
func TestScheduledTaskLinesUpWhenDue(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enqueue(ledger.EnqueueOptions{RunIn: time.Hour}, "a1")
	l.enqueue(ledger.EnqueueOptions{}, "a2", "a3", "a4")
	l.want("a1 scheduled, a2 available, a3 in_line")
	l.append("a2", ledger.EventScheduled) // had its turn
	l.append("a3", ledger.EventScheduled) // in line
	l.want("a1 scheduled, a2 scheduled, a3 scheduled, a4 available")
	l.append("a3", ledger.EventReleased)
	l.append("a1", ledger.EventReleased)
	l.append("a2", ledger.EventReleased)
	l.append("a4", ledger.EventSucceeded)
	l.want("a1 in_line, a2 in_line, a3 available")
	l.append("a3", ledger.EventSucceeded)
	l.want("a1 available, a2 in_line")
	ledgertest.Check(t, l.db)
}

// A replaced task stands at the end of the line, with or without a turn, and keeps its order key.
func TestReplacedTaskGoesToTheEndOfTheLine(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enqueue(ledger.EnqueueOptions{}, "a1", "a2", "a3")
	l.want("a1 available")
	l.enqueue(ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}, "a1")
	l.want("a1 in_line, a2 available, a3 in_line")
	o := ledger.EnqueueOptions{IfExists: ledger.IfExistsReplace}
	if _, err := ledger.Enqueue(t.Context(), l.db, lineKey("a2"), json.RawMessage(`{"n":1}`), &o); err != nil {
		t.Fatal(err)
	}
	if task := loaded(t, l.db, lineKey("a2")); task.OrderKey != customer || task.State != ledger.StateInLine {
		t.Errorf("replaced without an order key: %+v", task)
	}
	l.want("a1 in_line, a2 in_line, a3 available")
	o.OrderKey = "customer/18"
	_, err := ledger.Enqueue(t.Context(), l.db, lineKey("a2"), json.RawMessage(`{"n":2}`), &o)
	if invalid := wantErrorAs[*ledger.InvalidError](t, err); invalid.Field != "order_key" ||
		!strings.Contains(err.Error(), "waits with order key 'customer/17'") {
		t.Errorf("another order key: %v", err)
	}
	l.append("a3", ledger.EventSucceeded)
	l.want("a1 available, a2 in_line")
	l.append("a1", ledger.EventSucceeded)
	// The next run may stand in another line, or in none.
	if _, err := ledger.Enqueue(t.Context(), l.db, lineKey("a1"), json.RawMessage(`{"n":3}`),
		&ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}); err != nil {
		t.Fatal(err)
	}
	l.want("a1 available, a2 available")
	ledgertest.Check(t, l.db)
}

// Tasks whose transactions commit late keep their order among those that wait: in each history of open transactions,
// each task gets exactly one turn, and a task that committed before another one's transaction began comes first.
func TestLateCommitsInALine(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	type open struct {
		tx pgx.Tx
		id string
	}
	begin := func(ids ...string) (o open) {
		tx, err := l.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		for _, id := range ids {
			// A subtransaction, whose events have the transaction's xid.
			if err := pgx.BeginFunc(t.Context(), tx, func(sub pgx.Tx) error {
				l.enqueueIn(sub, ledger.EnqueueOptions{}, id)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		return open{tx, strings.Join(ids, " ")}
	}
	commit := func(o open) {
		if err := o.tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := begin("a1", "a2")
	idle := begin() // draws its xid late
	l.enqueue(ledger.EnqueueOptions{}, "b1", "b2")
	second := begin("a3", "a4")
	l.enqueue(ledger.EnqueueOptions{}, "b3")
	l.want("b1 available, b2 in_line, b3 in_line")
	third := begin("a5")
	l.append("b1", ledger.EventSucceeded)
	l.want("b2 available, b3 in_line")
	commit(third)
	commit(second)
	l.append("b2", ledger.EventSucceeded)
	l.want("a3 available, a4 in_line, b3 in_line, a5 in_line")
	l.append("a3", ledger.EventSucceeded)
	l.want("a4 available, b3 in_line, a5 in_line")
	commit(first)
	l.append("a4", ledger.EventSucceeded)
	l.want("a1 available, a2 in_line, b3 in_line, a5 in_line")
	l.append("a1", ledger.EventSucceeded)
	l.want("a2 available, b3 in_line, a5 in_line")
	l.append("a2", ledger.EventSucceeded)
	l.want("b3 available, a5 in_line")
	l.append("b3", ledger.EventSucceeded)
	l.want("a5 available")
	l.enqueueIn(idle.tx, ledger.EnqueueOptions{}, "a6")
	l.append("a5", ledger.EventSucceeded)
	l.enqueue(ledger.EnqueueOptions{}, "b7")
	l.want("b7 available")
	commit(idle)
	l.append("b7", ledger.EventSucceeded)
	l.want("a6 available")
	ledgertest.Check(t, l.db)
}

// A transaction that draws its xid and its position while another one draws a higher position and commits is found,
// although neither the snapshot of the next turn nor its xmax contains it.
func TestXIDAboveTheSnapshotInALine(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	early, err := l.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = early.Rollback(context.WithoutCancel(t.Context())) }()
	var xid string
	if err := early.QueryRow(t.Context(), "select pg_current_xact_id()::text").Scan(&xid); err != nil {
		t.Fatal(err)
	}
	late, err := l.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }()
	l.enqueueIn(late, ledger.EnqueueOptions{}, "a1")  // the higher xid, the lower position
	l.enqueueIn(early, ledger.EnqueueOptions{}, "a2") // the lower xid, the higher position
	if err := early.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.want("a2 available")
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.append("a2", ledger.EventSucceeded)
	l.want("a1 available")
}

// A turn reads as much of a large ledger as of a small one, also for a line whose last search did not see transactions.
func TestTurnReadsLittle(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	transactions := func() (n int) {
		const sql = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint::integer"
		if err := l.db.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := transactions()
	open, err := l.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(context.WithoutCancel(t.Context())) }()
	l.enqueueIn(open, ledger.EnqueueOptions{}, "a0")
	l.enqueue(ledger.EnqueueOptions{}, "a1", "a2", "a3")
	var others []ledger.Entry
	for i := range 60_000 {
		others = append(others, ledger.Entry{Key: lineKey(fmt.Sprint("o", i)),
			Options: &ledger.EnqueueOptions{OrderKey: fmt.Sprint("customer/", i%100+100)}})
	}
	if _, err := ledger.EnqueueMany(t.Context(), l.db, others); err != nil {
		t.Fatal(err)
	}
	ledgertest.ExecAsOwner(t, l.db, "analyze taskledger.event")
	l.want("a1 available")
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.append("a1", ledger.EventSucceeded)
	keeper, err := l.keeper.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Release()
	n := buffers(t, keeper, "select count(*) from taskledger_internal.advance_lines('{customer/17}')")
	// A search of the ledger reads 1,400. Each transaction of the server costs a look-up, in other databases too.
	if most := 200 + 4*(transactions()-before); n > most {
		t.Errorf("a turn read %d buffers, want %d at most", n, most)
	}
	l.want("a0 available, a2 in_line")
}

// No role makes a task in line available, begins it before its turn, or forges a turn.
func TestNoRoleJumpsALine(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enqueue(ledger.EnqueueOptions{}, "a1", "a2")
	l.advance()
	for _, typ := range []ledger.EventType{
		ledger.EventReleased, ledger.EventStarted, ledger.EventSucceeded, ledger.EventFailed,
	} {
		_, err := ledger.Append(t.Context(), l.db, ledgertest.Request(lineKey("a2"), 1, typ))
		if !errors.As(err, new(*ledger.TransitionError)) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	insert := func(role *pgxpool.Pool, id string, version int, attempt int, typ, key, data string) error {
		_, err := role.Exec(t.Context(), `
			insert into taskledger.event (version, attempt, shard, type, login_id, kind, biz_id, order_key, actor, data)
			select $1, $2, taskledger.shard_of($3), $4::taskledger.event_type, taskledger_internal.login_id(), $5, $3,
			       nullif($6, ''), 'x', $7::json`, version, attempt, id, typ, string(lineKey(id).Kind), key, data)
		return err
	}
	for name, role := range map[string]*pgxpool.Pool{"users": l.db, "relay": l.keeper} {
		for _, data := range []string{`{"reason":"turn","place":0}`, `{}`} {
			if err := insert(role, "a2", 2, 0, "released", customer, data); err == nil {
				t.Errorf("%s released a task in line", name)
			}
		}
		if err := insert(role, "a2", 2, 0, "cancelled", "", `{}`); err == nil {
			t.Errorf("%s took away the order key", name)
		}
		if err := insert(role, "n1", 1, 0, "enqueued", customer, `{}`); err == nil {
			t.Errorf("%s enqueued past the line", name)
		}
		if err := insert(role, "n1", 1, 0, "lined_up", "", `{}`); err == nil {
			t.Errorf("%s lined up without a line", name)
		}
	}
	l.append("a1", ledger.EventFailed)
	if err := insert(l.db, "a1", 4, 1, "released", customer, `{"reason":"turn","place":99}`); err == nil {
		t.Error("a worker forged a turn")
	}
	if err := insert(l.db, "a1", 4, 1, "released", customer, `{"reason":"retry"}`); err != nil {
		t.Error(err)
	}
	if _, err := l.db.Exec(t.Context(), "select taskledger_internal.advance_lines('{customer/17}')"); err == nil {
		t.Error("a user advanced a line")
	}
}

// The function refuses a caller whose snapshot or xid would be too old.
func TestAdvanceLinesChecksItsTransaction(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	for name, o := range map[string]pgx.TxOptions{
		"repeatable read": {IsoLevel: pgx.RepeatableRead},
		"with an xid":     {IsoLevel: pgx.ReadCommitted, BeginQuery: "begin; select pg_current_xact_id()"},
	} {
		err := pgx.BeginTxFunc(t.Context(), l.keeper, o, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "select count(*) from taskledger_internal.advance_lines('{customer/17}')")
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "taskledger: advance_lines") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Workers in SQL claim the task whose turn it is, and no other of its line.
func TestClaimNextInALine(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.enqueue(ledger.EnqueueOptions{}, "a1", "a2")
	l.enqueue(ledger.EnqueueOptions{OrderKey: "customer/18"}, "a8")
	claim := func(worker string) (ids []string) {
		t.Helper()
		rows, _ := l.db.Query(t.Context(), "select biz_id from taskledger.claim_next('line.a', $1, 10)", worker)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if _, err := l.db.Exec(t.Context(),
		"select taskledger.heartbeat(w, '{line.a}') from unnest('{w-1,w-2}'::text[]) w"); err != nil {
		t.Fatal(err)
	}
	if ids := claim("w-1"); len(ids) != 0 {
		t.Errorf("claimed before their turn: %v", ids)
	}
	l.advance("customer/17", "customer/18")
	if ids := append(claim("w-1"), claim("w-2")...); !slices.Equal(ids, []string{"a1", "a8"}) {
		t.Errorf("claimed %v", ids)
	}
	l.want("a1 running, a2 in_line")
	l.append("a1", ledger.EventSucceeded)
	l.advance()
	if ids := claim("w-2"); !slices.Equal(ids, []string{"a2"}) {
		t.Errorf("claimed %v", ids)
	}
	ledgertest.Check(t, l.db)
}

// A successor with an order key lines up when its predecessors have succeeded, behind tasks that were enqueued later.
func TestSuccessorLinesUpWhenReleased(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	before := lineKey("b1")
	if _, err := ledger.Enqueue(t.Context(), l.db, before, nil, nil); err != nil {
		t.Fatal(err)
	}
	l.enqueue(ledger.EnqueueOptions{After: []ledger.Key{before}}, "a1")
	l.enqueue(ledger.EnqueueOptions{}, "a2", "a3")
	l.want("a1 scheduled, a2 available, a3 in_line")
	l.append("b1", ledger.EventSucceeded)
	l.append("a1", ledger.EventReleased) // as the scheduler does
	l.want("a1 in_line, a2 available, a3 in_line")
	l.append("a2", ledger.EventSucceeded)
	l.append("a3", ledger.EventCancelled)
	l.want("a1 available")
	ledgertest.Check(t, l.db)
}

// An outcome that a worker appends after the offer of a turn needs no look at the event before. It is sent in one
// statement with outcomes of plain tasks, keeps the order key, and ends the turn.
func TestOutcomesInALineAfterWhatWasRead(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	withIncarnation(t, owner)
	l := &line{t, ledgertest.As(t, owner, "producer", "worker", "operator"), ledgertest.As(t, owner, "relay")}
	l.enqueue(ledger.EnqueueOptions{}, "a1", "a2")
	l.enqueue(ledger.EnqueueOptions{OrderKey: "customer/18"}, "b1", "b2")
	if _, err := ledger.Enqueue(t.Context(), l.db, lineKey("n0"), nil, nil); err != nil {
		t.Fatal(err)
	}
	l.advance("customer/17", "customer/18")
	requests := []ledger.AppendRequest{
		ledgertest.Request(lineKey("a1"), 2, ledger.EventSucceeded),
		ledgertest.Request(lineKey("b1"), 2, ledger.EventBuried),
		ledgertest.Request(lineKey("n0"), 1, ledger.EventSucceeded),
	}
	readLast(t, owner, requests)
	db := &recordingDB{DB: l.db}
	for i, result := range ledger.AppendEach(t.Context(), db, requests) {
		want := []string{customer, "customer/18", ""}[i]
		if result.Err != nil || result.Event.OrderKey != want {
			t.Errorf("%+v, want the order key %q", result, want)
		}
	}
	if len(db.statements) != 1 {
		t.Errorf("%d statements", len(db.statements))
	}
	l.advance("customer/17", "customer/18")
	const want = "a1 succeeded, a2 available, b1 dead, b2 in_line, n0 succeeded"
	if got := l.states("a1", "a2", "b1", "b2", "n0"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	release := []ledger.AppendRequest{ledgertest.Request(lineKey("b1"), 3, ledger.EventReleased)}
	readLast(t, owner, release)
	if r := ledger.AppendEach(t.Context(), l.db, release); r[0].Err != nil || r[0].Event.Type != ledger.EventLinedUp {
		t.Errorf("released: %+v", r)
	}
	ledgertest.Check(t, l.db)
}

// Several keepers at once give each line one turn at a time.
func TestKeepersAtOnce(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	const keys, depth = 8, 5
	var all []string
	for k := range keys {
		all = append(all, fmt.Sprint("key/", k))
		for i := range depth {
			l.enqueueIn(l.db, ledger.EnqueueOptions{OrderKey: all[k]}, fmt.Sprintf("a%d-%d", k, i))
		}
	}
	for i := range depth {
		turns := make(chan int)
		for range 4 {
			go func() {
				n, err := l.tryAdvance(all...)
				if err != nil {
					t.Error(err)
				}
				turns <- n
			}()
		}
		sum := 0
		for range 4 {
			sum += <-turns
		}
		if sum != keys {
			t.Fatalf("%d turns in round %d, want %d", sum, i, keys)
		}
		for k := range keys {
			l.append(fmt.Sprintf("a%d-%d", k, i), ledger.EventSucceeded)
		}
	}
	ledgertest.Check(t, l.db)
}

// Invalid order keys are refused, in Go and in SQL.
func TestInvalidOrderKeys(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	for name, o := range map[string]ledger.EnqueueOptions{
		"too long":          {OrderKey: strings.Repeat("x", 256)},
		"control character": {OrderKey: "a\nb"},
		"NUL":               {OrderKey: "a\x00b"},
		"not UTF-8":         {OrderKey: "a\xff"},
		"caller runs":       {OrderKey: "a", CanRun: true},
		"no line":           {PassIfDead: true},
	} {
		_, err := ledger.Enqueue(t.Context(), l.db, lineKey("a1"), nil, &o)
		if !errors.As(err, new(*ledger.InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range map[string]string{
		"too long": `enqueue('a.b', '1', order_key => repeat('x', 256))`,
		"empty":    `enqueue('a.b', '1', order_key => '')`,
		"control":  `enqueue('a.b', '1', order_key => E'a\nb')`,
		"no line":  `enqueue('a.b', '1', pass_if_dead => true)`,
		"meta":     `enqueue('a.b', '1', meta => '{"pass_if_dead":true}')`,
		"many too long": `enqueue_many(json_build_array(json_build_object('kind', 'a.b', 'biz_id', '1', 'order_key',
			repeat('x', 256))))`,
	} {
		if _, err := l.db.Exec(t.Context(), "select taskledger."+call); err == nil ||
			!strings.Contains(err.Error(), "taskledger: invalid") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// All forms of enqueueing line up tasks.
func TestEachEnqueueLinesUp(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	o := &ledger.EnqueueOptions{OrderKey: customer, PassIfDead: true}
	if _, err := ledger.EnqueueMany(t.Context(), l.db, []ledger.Entry{
		{Key: lineKey("a1"), Options: o}, {Key: lineKey("n0")},
	}); err != nil {
		t.Fatal(err)
	}
	tx, err := ledger.Begin(t.Context(), l.db, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.EnqueueAndCommit(t.Context(), lineKey("a2"), nil, o); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`select taskledger.enqueue('line.a', 'a3', order_key => 'customer/17', pass_if_dead => true)`,
		`select taskledger.enqueue_many('[{"kind":"line.a","biz_id":"a4","order_key":"customer/17","pass_if_dead":true},
		                                  {"kind":"line.n","biz_id":"n1"}]')`,
	} {
		if _, err := l.db.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	l.want("a1 available, a2 in_line, a3 in_line, a4 in_line, n0 available, n1 available")
	for _, id := range []string{"a1", "a2", "a3", "a4"} {
		l.append(id, ledger.EventBuried)
		l.advance()
	}
	if got := l.states("a4"); got != "a4 dead" {
		t.Error(got)
	}
	ledgertest.Check(t, l.db)
}
