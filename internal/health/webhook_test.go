package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Receivers that get no events are reported, each with its reason. Those that work, are new or are paused by an
// operator are not, nor is a program's subscriber whose name begins like a receiver's.
func TestReceiversThatGetNoEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"unserved", "stuck", "works", "paused", "program", "gone"} {
		b.exec(`select taskledger.seek_feed('webhook-' || $1::text, 0)`, name)
	}
	b.exec(`select taskledger_internal.mark_feed('webhook-paused', '{"paused":true}')`)
	ledgertest.Enqueue(t, b.db, ledgertest.Key(t, "coupon.send/1"), "")
	ledgertest.ExecAsOwner(t, b.db, `
		insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		select 1, 0, 0, 'enqueued', k, '1'
		  from (values ('taskledger.webhook.unserved'), ('taskledger.webhook.paused')) v(k);
		insert into taskledger.lease (name, holder, since, alive_until, detail)
		select 'worker/' || w.name, w.name, clock_timestamp() - w.age, clock_timestamp() + interval '1 hour',
		       json_build_object('kinds', (select json_agg('taskledger.webhook.' || k) from unnest(w.kinds) k))
		  from (values ('old', interval '1 minute', array['stuck', 'works', 'deleted']),
		               ('new', '0', array['new'])) w(name, age, kinds)`)
	b.project()
	ledgertest.ExecAsOwner(t, b.db, `
		alter table taskledger.event disable trigger user;
		update taskledger.event set recorded_at = clock_timestamp() - interval '31 s';
		update taskledger.cursor set recorded_at = clock_timestamp() - interval '31 s'`)
	ledgertest.ExecAsOwner(t, b.db, `
		update taskledger.cursor set recorded_at = clock_timestamp() where reader = 'subscriber/webhook-works'`)
	b.exec(`insert into taskledger.pause (kind, actor, reason) values ('taskledger.webhook.gone', 'a',
		'the receiver has answered 410 Gone')`)
	want := map[string]string{
		"deleted": "its subscriber was deleted", "gone": "answered 410 Gone", "stuck": "its subscriber has stopped",
		"unserved": "no process serves it",
	}
	r := b.read(health.Config{Only: []health.Name{health.WebhookStopped}})
	got := make(map[string]string)
	for _, held := range r.Degraded {
		got[held.About] = want[held.About]
		if !strings.Contains(held.Text, want[held.About]) || held.Threshold != 30*time.Second {
			t.Errorf("%+v", held)
		}
		if isKnown := !held.Since.IsZero(); isKnown == (held.About == "deleted") {
			t.Errorf("%s since %s", held.About, held.Since)
		}
	}
	if diff := difference.Of(want, got); diff != "" {
		t.Error(diff)
	}
}
