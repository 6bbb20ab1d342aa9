package ledger_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// documentedTransitions is the transition table of the documentation: event type, states before, state after. A dash
// is the state of a task without events.
const documentedTransitions = `
	enqueued     -                                                                 available
	scheduled    -,scheduled,retrying,available,in_line                            scheduled
	lined_up     -,scheduled,dead,cancelled,expired,discarded                      in_line
	released     scheduled,retrying,dead,cancelled,expired,discarded,available,in_line available
	started      available,running                                                 running
	progressed   running,available                                                 running
	succeeded    running,available                                                 succeeded
	failed       running,available                                                 retrying
	interrupted  running,available                                                 available
	snoozed      running,available                                                 scheduled
	buried       available,scheduled,in_line,running,retrying                         dead
	cancelled    available,scheduled,in_line,running,retrying                         cancelled
	expired      available,scheduled,in_line,retrying                                 expired
	discarded    available,scheduled,in_line,running                                  discarded`

func TestTransitionsAreThoseDocumented(t *testing.T) {
	t.Parallel()
	var want []ledger.Transition
	for line := range strings.Lines(documentedTransitions) {
		if fields := strings.Fields(line); len(fields) == 3 {
			row := ledger.Transition{Type: ledger.EventType(fields[0]), To: ledger.State(fields[2])}
			for from := range strings.SplitSeq(fields[1], ",") {
				row.From = append(row.From, ledger.State(strings.Trim(from, "-")))
			}
			want = append(want, row)
		}
	}
	if diff := difference.Of(want, ledger.Transitions()); diff != "" {
		t.Errorf("(-documented +in Go):\n%s", diff)
	}
}

// Transitions returns a copy: a caller that modifies it does not modify the table.
func TestTransitionsReturnsACopy(t *testing.T) {
	t.Parallel()
	table := ledger.Transitions()
	from := table[3].From[0]
	table[3].To, table[3].From[0] = "modified", "modified"
	if row := ledger.Transitions()[3]; row.To == "modified" || row.From[0] != from {
		t.Errorf("the table is now %v", row)
	}
}

func TestSQLHasTheSameTypesAndStates(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	rows, err := pool.Query(t.Context(), `
		select e::text, taskledger.state_after(e)::text
		  from unnest(enum_range(null::taskledger.event_type)) with ordinality as u(e, i)
		 order by i`)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Type  ledger.EventType
		State ledger.State
	}
	inSQL, err := pgx.CollectRows(rows, pgx.RowToStructByPos[answer])
	if err != nil {
		t.Fatal(err)
	}
	var inGo []answer
	for _, row := range ledger.Transitions() {
		if row.Type.State() != row.To {
			t.Errorf("%s leads to %s and to %s", row.Type, row.Type.State(), row.To)
		}
		inGo = append(inGo, answer{Type: row.Type, State: row.To})
	}
	if diff := difference.Of(inGo, inSQL); diff != "" {
		t.Errorf("types and states after them (-Go +SQL):\n%s", diff)
	}

	rows, err = pool.Query(t.Context(), `select unnest(enum_range(null::taskledger.task_state))::text`)
	if err != nil {
		t.Fatal(err)
	}
	states, err := pgx.CollectRows(rows, pgx.RowTo[ledger.State])
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.State{ledger.StateAvailable, ledger.StateScheduled, ledger.StateInLine, ledger.StateRunning,
		ledger.StateRetrying, ledger.StateSucceeded, ledger.StateDead, ledger.StateCancelled, ledger.StateExpired,
		ledger.StateDiscarded}
	if diff := difference.Of(want, states); diff != "" {
		t.Errorf("states (-Go +SQL):\n%s", diff)
	}
}

// keysForComparison returns random keys. Many share a prefix, and differ where the order of bytes differs from the
// order of a language or of UTF-16.
func keysForComparison() []ledger.Key {
	random := rand.New(rand.NewPCG(1, 2))
	kindBytes := "aAbBzZ09_-."
	runes := []rune("aAbBzZ09 _-./%'\"\\äÄß\u0301\u00a0\u200bя中\ud7ff\ue000\ufffd\U00010000😀\U0010ffff")
	keys := make([]ledger.Key, 0, 2000)
	for len(keys) < cap(keys) {
		var kind, id strings.Builder
		for range 1 + random.IntN(4) {
			kind.WriteByte(kindBytes[random.IntN(len(kindBytes))])
		}
		for range 1 + random.IntN(5) {
			id.WriteRune(runes[random.IntN(len(runes))])
		}
		if k := (ledger.Key{Kind: ledger.Kind(kind.String()), BizID: ledger.BizID(id.String())}); k.Validate() == nil {
			keys = append(keys, k)
		}
	}
	for _, id := range oddBizIDs {
		keys = append(keys, ledger.Key{Kind: "a", BizID: id})
	}
	return keys
}

func TestShardsAndOrderAreTheSameInSQL(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	keys := keysForComparison()
	slices.SortFunc(keys, ledger.Key.Compare)
	keys = slices.Compact(keys)
	var kinds, ids []string
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(len(keys)) {
		kinds, ids = append(kinds, string(keys[i].Kind)), append(ids, string(keys[i].BizID))
	}
	rows, err := pool.Query(t.Context(), `
		select k.kind, k.biz_id, taskledger.shard_of(k.biz_id)::integer
		  from unnest($1::text::text[], $2::text::text[]) as k(kind, biz_id)
		 order by k.kind collate "C", k.biz_id collate "C"`, pgarray.Of(kinds...), pgarray.Of(ids...))
	if err != nil {
		t.Fatal(err)
	}
	var inSQL []ledger.Key
	shards := map[ledger.Shard]int{}
	var k ledger.Key
	var shard ledger.Shard
	_, err = pgx.ForEachRow(rows, []any{(*string)(&k.Kind), (*string)(&k.BizID), (*int)(&shard)}, func() error {
		inSQL = append(inSQL, k)
		if shard != k.BizID.Shard() || shard.Validate() != nil {
			t.Errorf("%q is in shard %d in SQL and %d in Go", k.BizID, shard, k.BizID.Shard())
		}
		shards[shard]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(keys, inSQL); diff != "" {
		t.Errorf("order (-Go +SQL):\n%s", diff)
	}
	if len(shards) != ledger.Shards {
		t.Errorf("%d keys are spread over %d shards", len(keys), len(shards))
	}
}

// These shards never change, because they are part of the wire format.
func TestShardsNeverChange(t *testing.T) {
	t.Parallel()
	for id, want := range map[ledger.BizID]ledger.Shard{"1": 56, "order-42": 12, "订单": 32} {
		if got := id.Shard(); got != want {
			t.Errorf("shard of %q is %d, want %d", id, got, want)
		}
	}
}

// The database admits events of roles by the same rules as package ledger.
func TestSQLHasTheSameTransitions(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	rows, err := pool.Query(t.Context(), `
		select e::text, last::text, taskledger_internal.may_follow(e, last), taskledger_internal.begins_attempt(e, last)
		  from unnest(enum_range(null::taskledger.event_type)) e
		 cross join unnest(enum_range(null::taskledger.event_type)) last`)
	if err != nil {
		t.Fatal(err)
	}
	type pair struct {
		Type, Last           ledger.EventType
		MayFollow, IsAttempt bool
	}
	pairs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pair])
	if err != nil || len(pairs) != 14*14 {
		t.Fatal(len(pairs), err)
	}
	for _, p := range pairs {
		may, begins := ledger.Follows(p.Type, p.Last)
		if p.MayFollow != may || may && p.IsAttempt != begins {
			t.Errorf("%s after %s: SQL %t, %t; Go %t, %t", p.Type, p.Last, p.MayFollow, p.IsAttempt, may, begins)
		}
	}
}
