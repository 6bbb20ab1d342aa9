package outbox_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// erase erases a task, as taskledger erase does once the projector has read its end.
func (b *bundle) erase(k ledger.Key) {
	b.t.Helper()
	ledgertest.ExecAsOwner(b.t, b.pool, `
		insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, after_position, origin)
		select 'projector', 1, pg_current_snapshot(), 0, pg_snapshot_xmax(pg_current_snapshot())::text::xid8, 0,
		       taskledger_internal.origin()
		    on conflict do nothing`)
	var isWaiting bool
	err := ledgertest.As(b.t, b.pool, ledgertest.Owner).QueryRow(b.ctx(), `
		select is_waiting
		  from taskledger_internal.erase_tasks(null, array[$1::text], array[$2::text], false, '', null, 'request 17')`,
		string(k.Kind), string(k.BizID)).Scan(&isWaiting)
	if err != nil || isWaiting {
		b.t.Fatal(isWaiting, err)
	}
}

// deleted returns how many messages were deleted.
func (b *bundle) deleted() uint64 {
	s := b.state()
	return s.LastSeq - s.Msgs
}

// texts returns how many messages of the stream contain a text.
func (b *bundle) texts(text string) (n int) {
	b.t.Helper()
	state := b.state()
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := b.stream().GetMsg(b.ctx(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			b.t.Fatal(err)
		}
		if bytes.Contains(m.Data, []byte(text)) {
			n++
		}
	}
	return n
}

// The relay deletes the messages of an erased task, and no others, also after it was
// away. A record that is no erasure deletes nothing.
func TestMessagesOfAnErasedTaskAreDeleted(t *testing.T) {
	t.Parallel()
	for _, isAway := range []bool{false, true} {
		b := newBundle(t)
		relay := b.relay()
		for _, id := range []string{"1", "10", "2"} {
			k := ledger.Key{Kind: "mail.send", BizID: ledger.BizID(id)}
			ledgertest.Enqueue(t, b.pool, k, `{"to":"Ada `+id+`."}`)
			ledgertest.Append(t, b.pool, k, ledger.EventCancelled)
		}
		b.awaitPublished()
		if isAway {
			relay.end()
		}
		last := b.state().LastSeq
		b.erase(ledger.Key{Kind: "mail.send", BizID: "1"})
		ledgertest.ExecAsOwner(t, b.pool, `select taskledger_internal.record_act('erase', null, 'forged',
			'{"erasure":"4a3c3d7e-3f0f-4e8a-9d0e-000000000000"}', '["mail.send/2"]')`)
		if isAway {
			b.relay()
		}
		b.awaitPublished()
		b.await("the deletion of both messages", func() bool { return b.deleted() >= 2 })
		if b.texts("Ada 1.") != 0 {
			t.Error("a message contains the text")
		}
		if b.texts("Ada 10.") != 1 || b.texts("Ada 2.") != 1 {
			t.Error("messages of another task are deleted")
		}
		if n := b.deleted(); n != 2 || b.state().LastSeq <= last {
			t.Errorf("%d messages are deleted, want the 2 of the task", n)
		}
	}
}

// The record of an erasure names when the stream's age removes what the relay may not delete, if it does.
func TestErasureNamesTheAgeOfMessages(t *testing.T) {
	t.Parallel()
	for _, isForever := range []bool{false, true} {
		b := newBundle(t)
		relay := b.relay(func(c *outbox.Config) { c.Stream.MaxAge = time.Hour })
		k := ledger.Key{Kind: "mail.send", BizID: "1"}
		ledgertest.Enqueue(t, b.pool, k, `{"to":"Ada"}`)
		b.awaitPublished()
		if isForever {
			relay.end()
			config := b.stream().CachedInfo().Config
			config.MaxAge = 0
			if _, err := b.js.UpdateStream(b.ctx(), config); err != nil {
				t.Fatal(err)
			}
			b.relay()
		}
		ledgertest.Append(t, b.pool, k, ledger.EventCancelled)
		b.awaitPublished()
		b.erase(k)
		var until string
		var age *float64 // in seconds after the erasure; nil: forever
		err := ledgertest.As(t, b.pool, ledgertest.Owner).QueryRow(b.ctx(), `
			select u.until, extract(epoch from nullif(u.until, 'forever')::timestamptz - u.recorded_at)::float8
			  from (select e.data->'detail'->>'in_stream_until' as until, e.recorded_at
			          from taskledger.event e
			         where e.kind = 'taskledger.operation' and e.data->>'action' = 'erase') u`).Scan(&until, &age)
		if err != nil {
			t.Fatal(err)
		}
		if isForever != (age == nil) || age != nil && (*age < 3500 || *age > 3601) {
			t.Errorf("forever %t: until %s", isForever, until)
		}
	}
}

// A relay is killed after it has deleted the first message of an erased task. The next relay deletes the others.
func TestKilledRelayDeletesTheOtherMessages(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	relay := b.relay()
	k := ledger.Key{Kind: "mail.send", BizID: "1"}
	ledgertest.Enqueue(t, b.pool, k, `{"to":"Ada 1."}`)
	ledgertest.Append(t, b.pool, k, ledger.EventCancelled)
	b.awaitPublished()
	relay.end()
	b.erase(k)
	b.runKilled(fault.RelayErased, 1)
	if n := b.deleted(); n != 1 {
		t.Fatalf("the killed relay has deleted %d messages", n)
	}
	b.relay()
	b.await("the deletion of both messages", func() bool { return b.deleted() == 2 })
	if b.texts("Ada 1.") != 0 {
		t.Error("a message contains the text")
	}
}
