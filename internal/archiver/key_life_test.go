package archiver_test

import (
	"errors"
	"testing"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Keys are forgotten for kinds with a limited time alone, and only those that were archived since that choice. A key
// that was archived again counts from then on.
func TestKeysAreForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	db := f.As("archiver")
	f.finish("before")
	f.archive()
	if err := archiver.SetKeyLife(t.Context(), db, kind, 0, "alice", "policy 8"); err != nil {
		t.Fatal(err)
	}
	f.finish("1", "2", "again")
	mail := ledger.Key{Kind: "mail.send", BizID: "1"}
	ledgertest.Enqueue(t, f.DB, mail, `{}`)
	ledgertest.Append(t, f.DB, mail, ledger.EventCancelled)
	if r := f.archive(); r.Tasks != 4 || r.Forgotten != 3 {
		t.Fatalf("%+v", r)
	}
	found, err := ledger.Archived(t.Context(), f.DB, key("before"), key("1"), key("2"), mail)
	if err != nil || found[0] == nil || found[1] != nil || found[2] != nil || found[3] == nil {
		t.Errorf("%v, %v", found, err)
	}
	e, err := ledger.Enqueue(t.Context(), f.DB, key("1"), nil, &ledger.EnqueueOptions{CheckArchive: true})
	if err != nil || !e.New {
		t.Errorf("%+v, %v", e, err)
	}
	if n := claims(t, ledgertest.As(t, f.DB, "worker"), "1"); n != 1 {
		t.Errorf("%d claims of a forgotten key", n)
	}
	f.want("records", f.text(`
		select e.actor || ' ' || (e.data->>'reason') || ' ' || (e.data->>'action') || ' ' || (e.data->'detail'->>'kind')
		  from taskledger.event e
		 where e.kind = 'taskledger.operation' and e.version = 1
		   and e.data->>'action' in ('archive.keys', 'archive.forget')
		 order by e.position`), "alice policy 8 archive.keys coupon.send\nalice a test archive.forget coupon.send")

	if err := archiver.SetKeyLife(t.Context(), db, kind, -1, "alice", "policy 9"); err != nil {
		t.Fatal(err)
	}
	f.finish("3")
	if r := f.archive(); r.Tasks != 1 || r.Forgotten != 0 {
		t.Errorf("%+v", r)
	}
	ledgertest.Check(t, f.DB)
	if err := archiver.SetKeyLife(t.Context(), f.As("producer"), kind, 0, "", ""); err == nil {
		t.Error("a producer has set it")
	}
	var invalid *ledger.InvalidError
	if err := archiver.SetKeyLife(t.Context(), db, "not a kind", 0, "", ""); !errors.As(err, &invalid) {
		t.Errorf("an invalid kind: %v", err)
	}
}

// The history of an archived event is found by its position, even if its key is forgotten, and was archived again after
// it had been forgotten.
func TestHistoryOfForgottenKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := archiver.SetKeyLife(t.Context(), f.As("archiver"), kind, 0, "", ""); err != nil {
		t.Fatal(err)
	}
	place := t.TempDir()
	want := func(of, history []ledger.Event) {
		t.Helper()
		for _, e := range of {
			got, err := past.History(t.Context(), f.DB, e)
			if err != nil {
				t.Fatal(err)
			}
			f.wantEvents(got, history)
		}
	}
	f.finish("1")
	first := f.all()
	f.archiveAll(place)
	want(first, first)
	if err := archiver.SetKeyLife(t.Context(), f.As("archiver"), kind, -1, "", ""); err != nil {
		t.Fatal(err)
	}
	f.finish("1")
	second := f.all()
	f.archiveAll(place)
	want(first, first)
	want(second[len(second)-1:], second)
	want([]ledger.Event{{Key: key("1"), Position: 1 << 40}}, nil)
	ledgertest.ExecAsOwner(t, f.DB, `
		insert into taskledger.erasure (id, kind, biz_id, until, shard, erased_at, actor, reason)
		values (gen_random_uuid(), 'coupon.send', '1', 1000, 0, now(), 'alice', 'a test')`)
	if got, err := past.History(t.Context(), f.DB, first[0]); err != nil || len(got) != 3 || len(got[0].Data) > 0 {
		t.Errorf("an erased task: %v, %v", got, err)
	}
}

// A run that is killed while it forgets keys is continued by the next.
func TestKilledWhileKeysAreForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	db := f.As("archiver")
	for _, k := range []ledger.Kind{"a.kind", "b.kind"} {
		if err := archiver.SetKeyLife(t.Context(), db, k, 0, "", ""); err != nil {
			t.Fatal(err)
		}
		ledgertest.Enqueue(t, f.DB, ledger.Key{Kind: k, BizID: "1"}, `{}`)
		ledgertest.Append(t, f.DB, ledger.Key{Kind: k, BizID: "1"}, ledger.EventCancelled)
	}
	f.Project()
	f.SpawnAs("archiver", "archive", fault.ArchiveForgotten).AwaitKilled(t)
	f.want("keys", f.text(`select count(*)::text from taskledger.archived_key`), "1")
	f.archive()
	f.want("keys", f.text(`select count(*)::text from taskledger.archived_key`), "0")
	f.want("list", f.text(`select count(*)::text from taskledger.mortal_key`), "0")
}
