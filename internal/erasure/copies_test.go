package erasure_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/erasure"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

// mails is a subscriber with a table of its own, which removes its copies of erased tasks.
func mails(f *fixture) outbox.Subscription {
	return outbox.Subscription{
		DB: f.DB, Name: "mails", Kinds: []ledger.Kind{kind, "taskledger.operation"},
		Handle: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
			for _, e := range events {
				if e.Kind == kind && e.Version == 1 {
					_, err := tx.Exec(ctx, `insert into public.mail values ($1, $2)`, string(e.BizID), string(e.Data))
					if err != nil {
						return err
					}
				}
				for _, k := range ledger.Erased(e) {
					if _, err := tx.Exec(ctx, `delete from public.mail where id = $1`, string(k.BizID)); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}

// A subscriber that keeps copies removes them when it reads the record, whether it works during the erasure or comes
// after it.
func TestSubscriberErasesItsCopies(t *testing.T) {
	t.Parallel()
	for _, isAway := range []bool{false, true} {
		f := newFixture(t)
		ledgertest.ExecAsOwner(t, f.DB, `
			create table public.mail (id text primary key, data text);
			grant all on public.mail to public`)
		f.enqueue("1", "2")
		follow := func() (stop func()) {
			ctx, cancel := context.WithCancel(f.Context())
			done := make(chan error, 1)
			go func() { done <- outbox.Subscribe(ctx, mails(f)) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		copies := func() string { return f.text(`select id from public.mail where data like '%Ada%' order by id`) }
		stop := follow()
		f.Await("the copies", func() bool { return copies() == "1\n2" })
		if isAway {
			stop()
		}
		f.Project()
		f.erase(erasure.Options{Keys: []ledger.Key{key("1")}})
		if isAway {
			stop = follow()
		}
		f.Await("the erasure of a copy", func() bool { return copies() == "2" })
		stop()
	}
}

// Deliveries of webhooks and alarms about a task are erased with it, and others are not.
func TestDeliveriesAndAlarmsAreErased(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("1", "2")
	ledgertest.ExecAsOwner(t, f.DB, `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data)
		select 'taskledger.webhook.crm', e.position || s.suffix, 1, 0, 0, 'enqueued', 'webhook', '{"to":"`+secret+`"}'
		  from taskledger.event e cross join (values (''), ('-again-2')) s(suffix) where e.kind = 'mail.send'`)
	ledgertest.ExecAsOwner(t, f.DB, `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data)
		select 'taskledger.alarm', 'a-' || n, 1, 0, 0, 'enqueued', 'alarm', json_build_object('items', json_build_array(
		         json_build_object('groups', json_build_array(json_build_object(
		           'error', '`+secret+`', 'example', json_build_object('kind', 'mail.send', 'biz_id', n::text))))))
		  from generate_series(1, 2) n`)
	f.Project()
	f.erase(erasure.Options{Keys: []ledger.Key{key("1")}})
	f.want("copies with the text", f.text(`
		select e.kind || ' ' || case e.kind when 'taskledger.alarm' then e.biz_id
		                        else (select t.biz_id from taskledger.event t
		                               where t.position = split_part(e.biz_id, '-', 1)::bigint) end
		  from taskledger.event e
		 where e.kind like 'taskledger.%' and e.data::text like '%' || $1 || '%'
		 order by 1`, secret), "taskledger.alarm a-2\ntaskledger.webhook.crm 2\ntaskledger.webhook.crm 2")
	f.want("cancelled", f.text(`
		select count(*)::text from taskledger.event e where e.kind like 'taskledger.%' and e.type = 'cancelled'`), "3")
	f.verifyProjection()
}

// The positions of an archived task's events are in no table, but its deliveries may be.
func TestDeliveriesOfArchivedTasksAreErased(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	ledgertest.ExecAsOwner(t, f.DB, `
		insert into taskledger.event (kind, biz_id, version, attempt, shard, type, actor, data)
		select 'taskledger.webhook.crm', e.position::text, v.version, least(v.version - 1, 1), 0,
		       v.type::taskledger.event_type, 'webhook',
		       case when v.type = 'enqueued'
		            then json_build_object('kind', e.kind, 'biz_id', e.biz_id, 'version', e.version,
		                                   'position', e.position)
		            when v.type = 'buried' then json_build_object('error', json_build_object('message',
		                                                                     '`+secret+`')) end
		  from taskledger.event e
		 cross join (values (1, 'enqueued'), (2, 'started'), (3, 'buried')) v(version, type)
		 where e.kind = 'mail.send' and e.version <= 2
		union all
		select 'taskledger.webhook.crm', 'odd', 1, 0, 0, 'enqueued', 'webhook',
		       '{"kind":"mail.send","biz_id":"\u0000"}'`)
	f.store()
	f.want("leaks", f.leaks(), "event 1\nevent 2\nevent 3\nevent 8\ntask 1\ntask 2\ntask 3\ntask 8")
	f.erase(erasure.Options{Keys: []ledger.Key{key("1")}})
	f.want("leaks", f.leaks(), "event 2\nevent 8\ntask 2\ntask 8")
	f.verifyProjection()
}

// Runs behind a task contain args of their own: those that wait are cancelled and erased with the task, and those that
// have begun are erased, also if the task itself is archived. A run behind another task stays.
func TestRunsBehindATaskAreErased(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("waits", "begun", "other")
	follow := &ledger.EnqueueOptions{Actor: secret, IfExists: ledger.IfExistsFollow}
	for _, id := range []string{"waits", "begun", "other"} {
		ledgertest.Append(t, f.DB, key(id), ledger.EventStarted)
		servicetest.Try(ledger.Enqueue(t.Context(), f.DB, key(id), []byte(`{"to":"`+secret+` again"}`), follow))(t)
	}
	ledgertest.Append(t, f.DB, key("begun"), ledger.EventSucceeded)
	begin := func(id string) { f.text(`select taskledger_internal.begin_next($1, $2)::text`, kind, id) }
	begin("begun")
	ledgertest.Append(t, f.DB, key("begun"), ledger.EventStarted, ledger.EventSucceeded)
	ledgertest.ExecAsOwner(t, f.DB, `delete from taskledger.timer where biz_id = 'mail.send/begun'`) // as the scheduler
	f.store()
	f.want("archived", f.text(`select distinct e.biz_id from taskledger.event e where e.kind = $1 order by 1`, kind),
		"other\nwaits")
	f.erase(erasure.Options{Keys: []ledger.Key{key("waits"), key("begun")}})
	begin("waits")
	begin("other")
	f.want("texts", f.leaks(), "event mail.send/other\nevent other\ntag")
	f.want("ends", f.text(`select distinct on (e.biz_id) e.biz_id || ' ' || e.type from taskledger.event e
		where not starts_with(e.kind, 'taskledger.op') order by e.biz_id, e.version desc`),
		"mail.send/begun succeeded\nmail.send/other scheduled\n"+
			"mail.send/waits cancelled\nother started\nwaits cancelled")
	f.verifyProjection()
}

// An import erases what the archive lists, even if its volumes are of an old copy, and keeps the list.
func TestImportAppliesErasures(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	f.store()
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(f.archive)); err != nil {
		t.Fatal(err)
	}
	f.erase(erasure.Options{Keys: []ledger.Key{key("1")}})
	if err := os.CopyFS(filepath.Join(old, "erasures"), os.DirFS(filepath.Join(f.archive, "erasures"))); err != nil {
		t.Fatal(err)
	}
	to := newFixture(t)
	ledgertest.ExecAsOwner(t, to.DB, `
		update taskledger.setting set value = gen_random_uuid() where name = 'installation'`)
	owner := ledgertest.As(t, to.DB, ledgertest.Owner)
	servicetest.Try(archive.Import(t.Context(), owner, archive.Directory(old), nil))(t)
	to.want("texts", to.text(`
		select distinct e.biz_id from taskledger.event e where e::text like '%' || $1 || '%'`, secret), "2")
	to.want("list", to.text(`select x.kind || '/' || x.biz_id || ' ' || x.reason from taskledger.erasures x`),
		"mail.send/1 request 17")
	task := servicetest.Try(ledger.Load(t.Context(), to.DB, key("1")))(t)
	if task.State != ledger.StateSucceeded || task.Args != nil {
		t.Errorf("%+v", task)
	}
	// The files keep their ledger, so an erasure in this one refuses them before it erases anything.
	_, err := erasure.Erase(t.Context(), to.As("archiver"), erasure.Options{Keys: []ledger.Key{key("2")},
		Archives: []string{old}, Reason: "request 18", Open: open})
	if invalid, ok := errors.AsType[*ledger.InvalidError](err); !ok || invalid.Field != "archive" {
		t.Errorf("an archive of the imported ledger: %v", err)
	}
	to.want("texts", to.text(`
		select distinct e.biz_id from taskledger.event e where e::text like '%' || $1 || '%'`, secret), "2")
}

// A copy with an identity of its own does not change its original's archive. An erasure in the copy is refused before
// it erases anything, unless that archive is left out.
func TestErasureInACopyWithANewInstallation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	f.store()
	ledgertest.ExecAsOwner(t, f.DB, `
		update taskledger.setting set value = gen_random_uuid() where name = 'installation'`)
	o := erasure.Options{Keys: []ledger.Key{key("1")}, Reason: "request 19", Open: open}
	_, err := erasure.Erase(t.Context(), f.As("archiver"), o)
	if invalid, ok := errors.AsType[*ledger.InvalidError](err); !ok || invalid.Field != "archive" {
		t.Errorf("with the original's archive: %v", err)
	}
	if !filesLeak(t, f.archive) {
		t.Error("the original's archive has changed")
	}
	f.erase(erasure.Options{Keys: []ledger.Key{key("1")}, Gone: []string{f.archive}})
}
