package lease_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	plantest.Prepare(t, ledgertest.URL(t, "worker", "relay"), nil)
}

// The functions that delete have their owner's rights: each removes exactly what its caller may remove.
func TestRemovingIsNarrow(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	worker := ledgertest.As(t, owner, "worker")
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.lease (name, holder, alive_until, login) values
		  ('worker/theirs', 'theirs', now() + interval '1 hour', 'another'),
		  ('worker/ended', 'ended', now() - interval '1 hour', 'another'),
		  ('relay', 'relay', now() - interval '2 days', 'another'),
		  ('broker', 'serve', now() - interval '2 days', 'another'),
		  ('broker/a:6222', 'member', now() + interval '1 hour', 'another'),
		  ('broker/b:6222', 'restarting', now() - interval '1 hour', 'another'),
		  ('broker/c:6222', 'former', now() - interval '2 days', 'another')`)
	for _, statement := range []string{
		"select taskledger.heartbeat('mine', '{pay}')",
		"select taskledger_internal.remove_lease(name) from taskledger.lease",
		"select taskledger_internal.sweep_leases()",
	} {
		if _, err := worker.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	var leases string
	const names = "select string_agg(l.name, ' ' order by l.name) from taskledger.lease l"
	err := owner.QueryRow(t.Context(), names).Scan(&leases)
	if err != nil {
		t.Fatal(err)
	}
	want := "broker broker/a:6222 broker/b:6222 relay worker/theirs"
	if leases != want {
		t.Errorf("leases that are left: %s, want %s", leases, want)
	}
}

// The detail of a lease is read and checked once, and again if it has changed. Malformed ones are skipped.
func TestSessions(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	relay := ledgertest.As(t, owner, "relay")
	const insert = `
		insert into taskledger.lease (name, holder, alive_until, term, detail)
		values ('worker/' || $1, $1::text, now() + $2::interval, '30 s', $3::text::json)
		    on conflict (name) do update set detail = excluded.detail`
	put := func(worker, alive, detail string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), insert, worker, alive, detail); err != nil {
			t.Fatal(err)
		}
	}
	put("asks", "1 hour", `{"kinds":["a","b"],"key":"0102","capacity":7,"shards":"0-3"}`)
	put("claims", "1 hour", `{"kinds":["c"]}`)
	put("claims too", "1 hour", `{"kinds":["c"]}`)
	put("lost", "-1 second", `{"kinds":["d"]}`)
	put("malformed", "1 hour", `{"kinds":17}`)
	put("other key", "1 hour", `{"kinds":["a"],"key":"xyz"}`)
	var sessions lease.Sessions
	read := func() map[string]lease.Session {
		t.Helper()
		all, _, err := sessions.Read(t.Context(), relay)
		if err != nil {
			t.Fatal(err)
		}
		byWorker := map[string]lease.Session{}
		for _, s := range all {
			if s.Term != 30*time.Second {
				t.Errorf("%s: term %s", s.Worker, s.Term)
			}
			byWorker[s.Worker] = s
		}
		return byWorker
	}
	first, second := read(), read()
	for _, all := range []map[string]lease.Session{first, second} {
		var lines []string
		for worker, s := range all {
			lines = append(lines, fmt.Sprintf("%s %v %x %d", worker, s.Kinds, s.Key, s.Capacity))
		}
		slices.Sort(lines)
		want := "asks [a b] 0102 7, claims [c]  0, claims too [c]  0"
		if have := strings.Join(lines, ", "); have != want {
			t.Errorf("sessions %s, want %s", have, want)
		}
	}
	if &first["asks"].Kinds[0] != &second["asks"].Kinds[0] {
		t.Error("the kinds are read twice")
	}
	const failing = `
		create or replace function taskledger_internal.lease_kinds(detail json) returns text[] language plpgsql stable
		as
		$$ begin raise 'the detail is checked again'; end $$`
	var original string
	const definition = "select pg_get_functiondef('taskledger_internal.lease_kinds(json)'::regprocedure)"
	if err := owner.QueryRow(t.Context(), definition).Scan(&original); err != nil {
		t.Fatal(err)
	}
	replace := func(function string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), function); err != nil {
			t.Fatal(err)
		}
	}
	replace(failing)
	for range 8 { // from the sixth on with a plan for all arguments
		read()
	}
	replace(original)
	put("asks", "1 hour", `{"kinds":["e"],"key":"0102"}`)
	if s := read()["asks"]; !slices.Equal(s.Kinds, []string{"e"}) || s.Capacity != 0 {
		t.Errorf("after a change: %v", s)
	}
}

// A program that crashed 3,000 times within a day left a lease each time, of which the last 1,000 are kept. Leases that
// have not ended are kept, however many.
func TestEndedLeasesAreFew(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	worker := ledgertest.As(t, owner, "worker")
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.lease (name, holder, alive_until, detail)
		select 'worker/w' || i, 'w' || i,
		       now() + case when i <= 3000 then -1 else 1 end * interval '1 hour' + i * interval '1 second',
		       '{"kinds":["a"]}'
		  from generate_series(1, 4500) i`)
	if _, err := worker.Exec(t.Context(), "select taskledger_internal.sweep_leases()"); err != nil {
		t.Fatal(err)
	}
	var ended, alive int
	var oldest string
	err := owner.QueryRow(t.Context(), `
		select count(*) filter (where alive_until < now()), count(*) filter (where alive_until > now()),
		       (array_agg(holder order by alive_until))[1]
		  from taskledger.lease`).Scan(&ended, &alive, &oldest)
	if err != nil || ended != 1000 || alive != 1500 || oldest != "w2001" {
		t.Errorf("%d ended leases from %s, %d others, %v", ended, oldest, alive, err)
	}
}

// A login can have a limited number of leases that have not ended, so that it does not delay what reads all of them. It
// gets no more in many sessions, by leases that had ended, or by long details. Other logins are not concerned.
func TestLeasesOfALoginAreLimited(t *testing.T) {
	t.Parallel()
	const limit = 2000
	owner := ledgertest.Pool(t, ledgertest.Owner)
	worker := ledgertest.As(t, owner, "worker")
	add := func(first, n, bytes int) error {
		_, err := worker.Exec(t.Context(), `
			insert into taskledger.lease (name, holder, alive_until, detail)
			select 'worker/w' || i, 'w' || i, clock_timestamp() + interval '1 hour',
			       json_build_object('kinds', json_build_array('a'), 'padding', repeat('x', $3))
			  from generate_series($1::integer, $1::integer + $2::integer - 1) i`, first, n, bytes)
		return err
	}
	heartbeat := func(db ledger.DB, id string) error {
		_, err := db.Exec(t.Context(), "select taskledger.heartbeat($1::text, '{a}')", id)
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if !pgerr.Is(err, pgerr.InsufficientPrivilege) || !strings.Contains(err.Error(), "may have no more") {
			t.Errorf("%s: %v, want insufficient_privilege", what, err)
		}
	}
	refused("leases in a statement", add(0, limit+1, 0))
	refused("long details in a statement", add(0, 20, 1_000_000))
	if err := add(0, limit-1, 0); err != nil {
		t.Fatal(err)
	}
	added := make(chan error)
	for i := range 4 {
		go func() { added <- heartbeat(worker, fmt.Sprintf("new%d", i)) }()
	}
	var n int
	for range 4 {
		if err := <-added; err != nil {
			refused("a lease of four sessions", err)
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d of 4 sessions were refused at %d leases, want 3", n, limit-1)
	}
	ledgertest.ExecAsOwner(t, owner, `
		insert into taskledger.lease (name, holder, alive_until, detail)
		values ('worker/ended', 'ended', now() - interval '1 hour', '{"kinds":["a"]}')`)
	refused("a lease that had ended", heartbeat(worker, "ended"))
	_, err := worker.Exec(t.Context(), `
		update taskledger.lease set detail = json_build_object('kinds', json_build_array('a'), 'p', repeat('x', 5000))
		 where name = 'worker/w1'`)
	refused("a longer detail", err)
	if err := heartbeat(worker, "w1"); err != nil {
		t.Errorf("a lease is extended: %v", err)
	}
	if err := heartbeat(ledgertest.As(t, owner, "worker", "reader"), "ended"); err != nil {
		t.Errorf("another login: %v", err)
	}
	if _, err := worker.Exec(t.Context(), "select taskledger.heartbeat('w2', '{a}', '0')"); err != nil {
		t.Fatal(err)
	}
	if err := heartbeat(worker, "w3000"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// A worker begins although a role that may only connect holds advisory locks. Workers of a kind that begin exclude each
// other, and those of other kinds do not wait.
func TestLockOfWorkersIsTheirs(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	ledgertest.HoldAdvisoryLocks(t, owner, "taskledger.worker")
	worker := ledgertest.As(t, owner, "worker")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, err := worker.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Rollback(t.Context()) }()
	if err := lease.Lock(ctx, first, []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	second, err := worker.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Rollback(t.Context()) }()
	pid := ledgertest.BackendPID(t, second)
	locked := make(chan error, 1)
	go func() { locked <- lease.Lock(ctx, second, []string{"b"}) }()
	ledgertest.AwaitBlocked(t, owner, pid)
	if err := lease.Lock(ctx, worker, []string{"c", "d"}); err != nil { // no worker of another kind waits
		t.Fatal(err)
	}
	if err := first.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
}

// A relay cannot work, for two reasons in turn. The time of the note is that of the first one, until the relay works.
func TestNotesInTurnKeepTheTime(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "relay")
	since := func(text string) (at time.Time) {
		t.Helper()
		claim := lease.RelayClaim{Holder: "a", For: time.Hour, Note: &lease.Note{Text: text}}
		if term, err := lease.TakeRelay(t.Context(), db, claim); err != nil || term == 0 {
			t.Fatal(term, err)
		}
		var found *time.Time
		err := db.QueryRow(t.Context(), `
			select (l.detail->>'since')::timestamptz from taskledger.lease l
			 where l.name = 'relay' and coalesce(l.detail->>'note', '') = $1`, text).Scan(&found)
		if err != nil {
			t.Fatal(err)
		}
		if found != nil {
			at = *found
		}
		return at
	}
	first := since("no acknowledgement")
	for range 3 {
		if a, b := since("no stream"), since("no acknowledgement"); !a.Equal(first) || !b.Equal(first) {
			t.Errorf("the notes hold since %s and %s, want %s", a, b, first)
		}
	}
	if at := since(""); !at.IsZero() {
		t.Errorf("a relay that works has a note since %s", at)
	}
	if at := since("no stream"); !at.After(first) {
		t.Errorf("a later note holds since %s", at)
	}
}

// The text of any error can be a note: one with bytes that are not UTF-8, such as of another process, or of a panic.
func TestNotesOfHostileErrors(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, "relay")
	hostile := "a\xffb\x00c " + strings.Repeat("stack ", 10_000)
	note := func() (text string) {
		t.Helper()
		err := db.QueryRow(t.Context(), "select l.note from taskledger_internal.relay_lease l").Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(text, "a\uFFFDb\uFFFDc ") || len(text) > 10_000 {
			t.Errorf("%d bytes: %.20q", len(text), text)
		}
		return text
	}
	claim := lease.RelayClaim{Holder: "a", For: time.Hour, Note: &lease.Note{Text: hostile}}
	if term, err := lease.TakeRelay(t.Context(), db, claim); err != nil || term == 0 {
		t.Fatal(term, err)
	}
	taken := note()
	if err := lease.YieldRelay(t.Context(), db, "a", hostile, true); err != nil {
		t.Fatal(err)
	}
	if yielded := note(); yielded != taken {
		t.Errorf("%d bytes after yielding, before that %d", len(yielded), len(taken))
	}
	run, err := lease.ReadRun(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	d := lease.DispatcherClaim{Holder: "d", Run: run.Name}
	if _, ok, err := lease.TakeDispatcher(t.Context(), db, d); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := lease.YieldDispatcher(t.Context(), db, "d"); err != nil {
		t.Fatal(err)
	}
	if err := lease.RefuseDispatcher(t.Context(), db, hostile, true); err != nil {
		t.Fatal(err)
	}
	if s, err := lease.LookAtDispatcher(t.Context(), db); err != nil || s.Note != taken {
		t.Errorf("the dispatcher's note has %d bytes: %v", len(s.Note), err)
	}
}
