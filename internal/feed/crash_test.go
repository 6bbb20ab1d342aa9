package feed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A crash of the database undoes commits that did not wait for the disk, and the xids and positions of
// unfinished transactions. The database assigns these again. A feed that was open during the crash fails, and
// so do its pages. A mutant without the check takes the new events for delivered.
func TestFeedHeldOverACrash(t *testing.T) {
	for _, crash := range []struct {
		name string
		play func(*crashFixture)
	}{
		{name: "the server is killed", play: (*crashFixture).killServer},
		{name: "a backend is killed", play: (*crashFixture).killBackend}, // the same server continues after a recovery
	} {
		for _, forgotten := range []struct {
			name string
			play func(*crashFixture, ...string)
			page bool // its events could be read before the crash
		}{
			{name: "commits without the disk", play: (*crashFixture).enqueueAsynchronously, page: true},
			{name: "an open transaction", play: (*crashFixture).enqueueOpen, page: false},
		} {
			for _, isKept := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s/unlogged tables kept=%t", crash.name, forgotten.name, isKept)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for range 5 { // the server may have written its log just before the crash
						if playCrash(t, crash.play, forgotten.play, forgotten.page, isKept) {
							return
						}
					}
					t.Error("no crash made the database give out a position again")
				})
			}
		}
	}
}

// playCrash keeps a feed, a page of it if there is one, and a mutant of the feed over a crash, and checks
// them after it. It reports whether the database lost events that they had read. isKept: the server keeps its unlogged
// tables over a crash, as Aurora.
func playCrash(
	t *testing.T, crash func(*crashFixture), forgotten func(*crashFixture, ...string), readable, isKept bool,
) bool {
	t.Helper()
	f := newCrashFixture(t)
	if isKept {
		f.exec(f.owner, "alter table taskledger.incarnation set logged")
		f.becomeAurora()
	}
	opened, mutant := f.open(f.pool, nil), f.open(f.pool, nil)
	mutant.Mutate(replace(t, feed.WindowSQL,
		"coalesce(taskledger_internal.incarnation(), '')", "'"+opened.Incarnation()+"'"),
		"")
	f.enqueue(f.pool, numbered("durable", drawnAtOnce)...)
	f.drain(opened)
	f.poll(mutant)

	f.makeRoom()
	forgotten(f, numbered("forgotten", 5)...)
	page, ok, err := opened.Poll(f.ctx)
	if err != nil || ok != readable {
		t.Fatal(ok, err)
	}
	f.poll(mutant)
	crash(f)
	after := numbered("after", 20)
	f.enqueue(f.pool, after...)
	for e, err := range ledger.Read(f.ctx, f.pool, drawnAtOnce, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.BizID != "after 0" || e.Position > drawnAtOnce+5 {
			return false
		}
	}

	if readable {
		if err := page.Advance(f.ctx, nil, nil); !errors.Is(err, feed.ErrCrashed) {
			t.Errorf("Advance of a page read before the crash: %v, want ErrCrashed", err)
		}
	}
	if _, _, err := opened.Poll(f.ctx); !errors.Is(err, feed.ErrCrashed) {
		t.Errorf("Poll after the crash: %v, want ErrCrashed", err)
	}
	if err := opened.Rewind(f.ctx, opened.Cursor(), nil); !errors.Is(err, feed.ErrCrashed) {
		t.Errorf("Rewind after the crash: %v, want ErrCrashed", err)
	}
	if got := f.poll(mutant); slices.Equal(got, after) {
		t.Error("the mutant lost nothing: this proves nothing")
	}
	if diff := difference.Of(after, f.drain(f.open(f.pool, nil))); diff != "" {
		t.Errorf("the feed opened anew delivered (-want +got):\n%s", diff)
	}
	return true
}

// An administrator resets the statistics of the server, which is no crash: sessions continue. Elsewhere than on Aurora
// nothing changes. There the sessions with a note agree with new ones, or each half would refuse the other's tasks.
func TestStatisticsAreReset(t *testing.T) {
	t.Parallel()
	for _, isAurora := range []bool{false, true} {
		t.Run(fmt.Sprintf("aurora=%t", isAurora), func(t *testing.T) {
			t.Parallel()
			f := newCrashFixture(t)
			if isAurora {
				f.becomeAurora()
			}
			opened := f.open(f.pool, nil)
			noted := func(tx pgx.Tx) (value string) {
				const sql = "select coalesce(taskledger_internal.session_incarnation(), '')"
				if err := tx.QueryRow(f.ctx, sql).Scan(&value); err != nil {
					t.Fatal(err)
				}
				return value
			}
			session, err := f.pool.Acquire(f.ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Release()
			inTx := func(db interface {
				Begin(context.Context) (pgx.Tx, error)
			}) (value string) {
				tx, err := db.Begin(f.ctx)
				if err != nil {
					t.Fatal(err)
				}
				value = noted(tx)
				f.commit(tx)
				return value
			}
			before := inTx(session)
			f.exec(f.owner, "select pg_stat_reset_shared('bgwriter')")
			_, _, err = opened.Poll(f.ctx)
			if isCrash := errors.Is(err, feed.ErrCrashed); isCrash != isAurora || !isCrash && err != nil {
				t.Errorf("Poll after the statistics were reset: %v", err)
			}
			f.open(f.pool, nil)
			old, fresh := inTx(session), inTx(f.owner)
			if old != fresh || fresh == "" || (fresh != before) != isAurora {
				t.Errorf("before %q, after %q in an older session and %q in a new one", before, old, fresh)
			}
		})
	}
}

// becomeAurora makes the server look like Aurora.
func (f *crashFixture) becomeAurora() {
	f.t.Helper()
	tx, err := f.owner.Begin(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	f.exec(tx, "set local allow_system_table_mods to on")
	f.exec(tx, "create function pg_catalog.aurora_version() returns text language sql return '17.4'")
	f.commit(tx)
}

// An orderly restart loses nothing, so a feed may stay open over it.
func TestFeedHeldOverARestart(t *testing.T) {
	t.Parallel()
	f := newCrashFixture(t)
	opened := f.open(f.pool, nil)
	f.enqueueAsynchronously("before")
	page, ok, err := opened.Poll(f.ctx)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := f.server.Restart(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.awaitServer()
	f.enqueue(f.pool, "after")
	if err := page.Advance(f.ctx, nil, nil); err != nil {
		t.Errorf("Advance over a restart: %v", err)
	}
	if diff := difference.Of([]string{"after"}, f.drain(opened)); diff != "" {
		t.Errorf("after the restart (-want +got):\n%s", diff)
	}
}

// drawnAtOnce is the number of positions that the first entry of the sequence in the log covers. The position
// after them writes the next entry, which a crash may lose.
const drawnAtOnce = 33

// crashFixture is a server that does not write the last page of its log unless the page is full or a commit
// requires it.
type crashFixture struct{ *feedFixture }

func newCrashFixture(t *testing.T) *crashFixture {
	t.Helper()
	server := ledgertest.Cluster(t, map[string]string{"autovacuum": "off", "wal_writer_delay": "10s",
		"bgwriter_lru_maxpages": "0"})
	f := &crashFixture{&feedFixture{t: t, ctx: t.Context(), server: server}}
	f.pool = f.connect(ledgertest.Database, ledgertest.App, "relay")
	f.owner = f.connect(ledgertest.Database, ledgertest.Owner)
	return f
}

// makeRoom fills the current page of the log if its end is near.
func (f *crashFixture) makeRoom() {
	f.t.Helper()
	f.exec(f.pool, `
		select pg_logical_emit_message(true, '', repeat('x', 4000)) from pg_current_wal_insert_lsn() as lsn
		 where (lsn - '0/0') % 8192 > 4000`)
}

func numbered(name string, n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s %d", name, i))
	}
	return ids
}

func (f *crashFixture) enqueueAsynchronously(ids ...string) {
	f.t.Helper()
	tx := f.begin()
	f.exec(tx, "set local synchronous_commit to off")
	f.enqueue(tx, ids...)
	f.commit(tx)
}

func (f *crashFixture) enqueueOpen(ids ...string) {
	f.t.Helper()
	f.enqueue(f.begin(), ids...)
}

// poll reads all pages without advancing the cursor.
func (f *feedFixture) poll(opened *feed.Feed) []string {
	f.t.Helper()
	ids := []string{}
	for empty := 0; empty < 2; {
		page, ok, err := opened.Poll(f.ctx)
		if err != nil {
			f.t.Fatal(err)
		}
		if !ok {
			empty++
		}
		for _, e := range page.Events {
			ids = append(ids, string(e.BizID))
		}
	}
	return ids
}

func (f *crashFixture) killServer() {
	f.t.Helper()
	if err := f.server.Kill(); err != nil {
		f.t.Fatal(err)
	}
	if err := f.server.Restart(f.ctx); err != nil {
		f.t.Fatal(err)
	}
	f.awaitServer()
}

// killBackend kills one backend. The postmaster then ends the others, the bystander among them.
func (f *crashFixture) killBackend() {
	f.t.Helper()
	var conns [2]*pgxpool.Conn
	for i := range conns {
		conn, err := f.pool.Acquire(f.ctx)
		if err != nil {
			f.t.Fatal(err)
		}
		defer conn.Release()
		conns[i] = conn
	}
	backend, err := os.FindProcess(ledgertest.BackendPID(f.t, conns[0].Conn()))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := backend.Kill(); err != nil {
		f.t.Fatal(err)
	}
	await(f.t, "the end of the bystander", func() bool { return conns[1].Ping(f.ctx) != nil })
	f.awaitServer()
}

// awaitServer waits until the server accepts statements on new connections.
func (f *crashFixture) awaitServer() {
	f.t.Helper()
	f.pool.Reset()
	await(f.t, "the server to recover", func() bool { return f.pool.Ping(f.ctx) == nil })
}
