package operator_test

import (
	"testing"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A line that has stood for a long time is found behind more burials than are examined, by the projection. If too many
// tasks are dead, too, the answer is that there may be more.
func TestStoppedLinesBehindManyBurials(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, ledgertest.Owner)
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	const event = `insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data, order_key) `
	const turn = `'{"reason":"turn","place":1,"seen":"1:1:","bound":"2"}'`
	const task = `insert into taskledger.task (kind, biz_id, shard, state, aside, version, attempt, failures,
		enqueued_at, updated_at, fingerprint)
		select 'coupon.send', n, 0, 'dead', 'dead', 3, 0, 0, now(), now(), '0123456789abcdef' from `
	exec(event + `select 'coupon.send', n, i, 0, 0, (array['lined_up', 'released', 'buried'])[i]::taskledger.event_type,
		'w', (case i when 2 then ` + turn + ` end)::json, 'line/' || n
		  from (values ('old'), ('older')) t(n), generate_series(1, 3) i order by n desc, i`)
	exec(event + `select 'coupon.send', 'n' || n, i, 0, 0, (array['lined_up', 'buried', 'cancelled'])[i]
		::taskledger.event_type, 'w', null, 'line/' || n from generate_series(1, 10001) n, generate_series(1, 3) i`)
	exec(task + `(values ('old'), ('older'), ('n1')) t(n)`) // the projection is behind with the last one
	exec("analyze")
	read := func(lines int, more bool) {
		t.Helper()
		all, hasMore, err := operator.ReadStoppedLines(t.Context(), db)
		if err != nil || len(all) != lines || hasMore != more {
			t.Errorf("%d lines, more: %t, %v, want %d, %t", len(all), hasMore, err, lines, more)
		}
		if len(all) > 1 && (all[0].OrderKey != "line/old" || all[1].OrderKey != "line/older") {
			t.Errorf("lines %v", all)
		}
	}
	read(2, false)
	exec(event + `select 'coupon.send', 'new', i, 0, 0, (array['lined_up', 'released', 'buried'])[i]
		::taskledger.event_type, 'w', (case i when 2 then ` + turn + ` end)::json, 'line/new'
		  from generate_series(1, 3) i`)
	exec(task + `generate_series(1, 10001) i, lateral (select 'other' || i) t(n)`)
	all, hasMore, err := operator.ReadStoppedLines(t.Context(), db)
	if err != nil || len(all) == 0 || all[0].OrderKey != "line/new" || !hasMore {
		t.Errorf("%v, more: %t, %v", all, hasMore, err)
	}
}

// A line stands no longer once its dead task is cancelled.
func TestCancelDeadOfALine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.Later("1", ledger.EnqueueOptions{OrderKey: "line/1"})
	b.Later("2", ledger.EnqueueOptions{OrderKey: "line/1"})
	b.Forge(`insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data, order_key)
		select kind, biz_id, 2, 0, shard, 'released', 'w', '{"reason":"turn","place":1,"seen":"1:1:","bound":"2"}',
		       order_key
		  from taskledger.event where kind = $1 and biz_id = '1'`, string(first.Kind))
	servicetest.Try(b.Operator().Bury(b.Context(), first, audit))(t)
	b.Project()
	want := func(lines int) {
		t.Helper()
		all, _, err := operator.ReadStoppedLines(b.Context(), b.DB)
		if err != nil || len(all) != lines {
			t.Errorf("%d lines stand, %v, want %d", len(all), err, lines)
		}
	}
	want(1)
	servicetest.Try(b.Operator().CancelDead(b.Context(), operator.Filter{Kind: first.Kind}, audit))(t)
	if s := b.Task(first).State; s != ledger.StateCancelled {
		t.Errorf("the task is %s", s)
	}
	want(0)
}
