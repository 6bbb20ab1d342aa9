package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// readLast sets the last events of requests as a worker does that has read their tasks.
func readLast(t *testing.T, db rowDB, requests []ledger.AppendRequest) {
	t.Helper()
	for i := range requests {
		var last unexported.LastEvent
		err := db.QueryRow(t.Context(), `
			select e.version, e.attempt, taskledger.state_after(e.type)::text, e.shard, e.position,
			       coalesce(e.partition, ''), coalesce(e.order_key, ''),
			       taskledger_internal.session_incarnation()
			  from taskledger.event e
			 where e.kind = $1 and e.biz_id = $2
			 order by e.version desc limit 1`, requests[i].Key.Kind, requests[i].Key.BizID).
			Scan(&last.Version, &last.Attempt, &last.State, &last.Shard, &last.Position, &last.Partition,
				&last.OrderKey, &last.Incarnation)
		if err != nil {
			t.Fatal(err)
		}
		requests[i].Expected = ledger.Version(last.Version)
		unexported.SetLastEvent(&requests[i], last)
	}
}

// rowDB is a pool or a connection.
type rowDB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// withIncarnation gives the database an incarnation, as the first feed does.
func withIncarnation(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ledgertest.ExecAsOwner(t, pool, "select taskledger_internal.begin_incarnation()")
}

// beginIncarnation is withIncarnation for the database at an address.
func beginIncarnation(t *testing.T, address string) {
	t.Helper()
	owner := connectIn(t, ledgertest.URLAs(t, address, ledgertest.Owner), pgx.QueryExecModeCacheStatement)
	if _, err := owner.Exec(t.Context(), "select taskledger_internal.begin_incarnation()"); err != nil {
		t.Fatal(err)
	}
}

// An event that follows a last event which was read before is the same as if it was read by the append: in every state
// and for each type.
func TestAppendEachAfterWhatWasRead(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	withIncarnation(t, pool)
	histories := [][]ledger.EventType{
		{}, {ledger.EventSnoozed}, {ledger.EventStarted}, {ledger.EventFailed}, {ledger.EventSucceeded},
		{ledger.EventBuried}, {ledger.EventStarted, ledger.EventInterrupted},
		{ledger.EventFailed, ledger.EventReleased, ledger.EventStarted, ledger.EventProgressed},
	}
	var requests []ledger.AppendRequest
	for i, types := range histories {
		for _, row := range ledger.Transitions() {
			if row.Type == ledger.EventEnqueued || row.Type == ledger.EventLinedUp {
				continue
			}
			for _, twin := range []string{"read", "not read"} {
				k := ledger.Key{Kind: "append", BizID: ledger.BizID(fmt.Sprint(twin, " ", i, " ", row.Type))}
				shard := ledger.Shard(i)
				o := &ledger.EnqueueOptions{Shard: &shard, Partition: strings.Repeat("p", i)}
				if _, err := ledger.Enqueue(t.Context(), pool, k, nil, o); err != nil {
					t.Fatal(err)
				}
				task := ledgertest.Append(t, pool, k, types...)
				requests = append(requests, ledgertest.Request(k, task.Version, row.Type))
			}
		}
	}
	for i := 0; i < len(requests); i += 2 {
		readLast(t, pool, requests[i:i+1])
	}
	db := &incarnationDB{recordingDB: recordingDB{DB: pool}}
	results := ledger.AppendEach(t.Context(), db, requests)
	if db.given == nil {
		t.Error("no last event was taken as read")
	}
	appended := 0
	for i := 0; i < len(results); i += 2 {
		read, other := results[i], results[i+1]
		var a, b *ledger.TransitionError
		if errors.As(read.Err, &a) && errors.As(other.Err, &b) && a.State == b.State {
			continue
		}
		if read.Err != nil || other.Err != nil {
			t.Errorf("%s: %v; %v", requests[i].Key, read.Err, other.Err)
			continue
		}
		appended++
		a1, b1 := read.Event, other.Event
		if a1.Version != b1.Version || a1.Attempt != b1.Attempt || a1.Shard != b1.Shard || a1.Type != b1.Type ||
			a1.Partition != b1.Partition {
			t.Errorf("%s: %+v, want as %+v", requests[i].Key, a1, b1)
		}
	}
	if appended < 20 {
		t.Errorf("%d pairs were appended", appended)
	}
	if len(db.statements) > 1 && db.statements[1] == db.statements[0] {
		t.Error("the requests were sent twice")
	}
	ledgertest.Check(t, pool)
}

// incarnationDB records the incarnation that the first statement is given.
type incarnationDB struct {
	recordingDB
	given any
}

func (db *incarnationDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if len(db.statements) == 0 && strings.Contains(sql, "append_many.sql for tasks whose last events") {
		db.given = args[11]
	}
	return db.recordingDB.Query(ctx, sql, args...)
}

// A task that has moved on since its last event was read fails alone.
func TestAppendEachAfterWhatHasChanged(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	withIncarnation(t, pool)
	requests := readTasks(t, pool, 40)
	ledgertest.Append(t, pool, requests[7].Key, ledger.EventStarted)
	for i, r := range ledger.AppendEach(t.Context(), pool, requests) {
		if i == 7 {
			wantErrorAs[*ledger.ConflictError](t, r.Err)
		} else if r.Err != nil {
			t.Errorf("%d: %v", i, r.Err)
		}
	}
	ledgertest.Check(t, pool)
}

// If some last events of a group were read in another incarnation, the first statement appends the others. Their
// results stay, even if the next statement fails.
func TestAppendEachBesideWhatWasReadEarlier(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	withIncarnation(t, pool)
	requests := readTasks(t, pool, 40)
	for i := range requests {
		last := unexported.LastEvent{}
		if i%2 == 0 {
			last = requests[i].LastEvent()
			last.Incarnation = "an earlier one"
		}
		unexported.SetLastEvent(&requests[i], last)
	}
	rival := beginTx(t, pool, pgx.ReadCommitted)
	if _, err := ledger.Append(t.Context(), rival, requests[20]); err != nil {
		t.Fatal(err)
	}
	for i, r := range ledger.AppendEach(t.Context(), pool, requests) {
		if i == 20 {
			if code := wantErrorAs[*pgconn.PgError](t, r.Err).Code; code != "55P03" {
				t.Errorf("the locked key: %v", r.Err)
			}
		} else if r.Err != nil || r.Event.Version != 2 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if err := rival.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ledgertest.Check(t, pool)
}

// A trigger of the owner that skips an event fails the group: no result is given to another request.
func TestAppendEachWhereATriggerSkips(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	withIncarnation(t, pool)
	requests := readTasks(t, pool, 5)
	for _, sql := range []string{
		"create function taskledger.skip() returns trigger language plpgsql as 'begin return null; end'",
		`create trigger skip before insert on taskledger.event
		    for each row when (new.biz_id = '2' and new.version > 1) execute function taskledger.skip()`,
	} {
		ledgertest.ExecAsOwner(t, pool, sql)
	}
	for _, r := range ledger.AppendEach(t.Context(), pool, requests) {
		wantErrorAs[*ledger.CorruptError](t, r.Err)
	}
}

// readTasks enqueues tasks and returns requests that follow their last events as read.
func readTasks(t *testing.T, pool *pgxpool.Pool, n int) []ledger.AppendRequest {
	t.Helper()
	requests := make([]ledger.AppendRequest, n)
	for i := range requests {
		requests[i] = appending(ledger.BizID(fmt.Sprint(i)), 1, ledger.EventSucceeded)
		ledgertest.Enqueue(t, pool, requests[i].Key, "")
	}
	readLast(t, pool, requests)
	return requests
}

// A crash may undo a last event that was read, if its commit did not wait for the disk. No event follows it then: the
// task would lack a version. A mutant of the statement, which does not compare the incarnations, appends one.
func TestAppendEachAfterACrash(t *testing.T) {
	for _, mutant := range []bool{false, true} {
		t.Run(fmt.Sprint("mutant ", mutant), func(t *testing.T) {
			t.Parallel()
			for range 5 { // the server may have written its log just before the crash
				if appendOverACrash(t, mutant) {
					return
				}
			}
			t.Error("no crash undid an event")
		})
	}
}

// crashAfterReading returns requests that follow last events. After they were read, a crash undid the events from
// number 10 on. It returns false if the crash undid nothing.
func crashAfterReading(t *testing.T) (_ *pgxpool.Pool, _ []ledger.AppendRequest, isUndone bool) {
	t.Helper()
	server := ledgertest.Cluster(t, map[string]string{"autovacuum": "off", "wal_writer_delay": "10s"})
	pool, err := pgxpool.New(t.Context(), server.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	begin := func() {
		t.Helper()
		if err := execute(t, pool, "select taskledger_internal.begin_incarnation()"); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	requests := readTasks(t, pool, 20)
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local synchronous_commit to off"); err != nil {
			return err
		}
		for _, r := range requests[10:] { // an outcome: a start waits for the disk
			ledgertest.Append(t, tx, r.Key, ledger.EventInterrupted)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	readLast(t, pool, requests)
	killBackend(t, pool)
	if count(t, pool, "select count(*) from taskledger.event where version = 2") > 0 {
		return nil, nil, false
	}
	begin()
	return pool, requests, true
}

// appendOverACrash reports whether the crash undid events that had been read.
func appendOverACrash(t *testing.T, isMutant bool) bool {
	t.Helper()
	pool, requests, isUndone := crashAfterReading(t)
	if !isUndone {
		return false
	}
	var db ledger.DB = pool
	if isMutant {
		db = &rewritingDB{pool, incarnationCheck, startCheck}
	}
	results := ledger.AppendEach(t.Context(), db, requests)
	for i, r := range results[:10] {
		if r.Err != nil || r.Event.Version != 2 {
			t.Errorf("%d, which was not undone: %+v", i, r)
		}
	}
	holes := count(t, pool, holesSQL)
	if isMutant != (holes > 0) {
		t.Errorf("%d events without the one before", holes)
	}
	conflicts := slices.IndexFunc(results[10:], func(r ledger.AppendResult) bool { return !ledger.IsConflict(r.Err) })
	if !isMutant && conflicts >= 0 {
		t.Errorf("an event after one that was undone: %+v", results[10+conflicts])
	}
	return true
}

// killBackend kills a server process. The server then ends the others and recovers; it does not restart.
func killBackend(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var conns [2]*pgxpool.Conn
	for i := range conns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		conns[i] = conn
	}
	backend, err := os.FindProcess(ledgertest.BackendPID(t, conns[0].Conn()))
	if err != nil {
		t.Fatal(err)
	}
	if err := backend.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the others", func() bool { return conns[1].Ping(t.Context()) != nil })
	pool.Reset()
	await(t, "the server", func() bool { return pool.Ping(t.Context()) == nil })
}

// A copy of the data directory of a stopped server, put back, undoes commits and keeps the incarnation. No outcome
// follows an undone event. A mutant of the statement, which does not compare the runs of the server, appends some.
func TestAppendEachAfterACopyWasPutBack(t *testing.T) {
	for _, mutant := range []bool{false, true} {
		t.Run(fmt.Sprint("mutant ", mutant), func(t *testing.T) {
			t.Parallel()
			server := ledgertest.Cluster(t, nil)
			pool, err := pgxpool.New(t.Context(), server.URL(ledgertest.Database))
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			if err := execute(t, pool, "select taskledger_internal.begin_incarnation()"); err != nil {
				t.Fatal(err)
			}
			requests := readTasks(t, pool, 20)
			var data string
			if err := pool.QueryRow(t.Context(), "show data_directory").Scan(&data); err != nil {
				t.Fatal(err)
			}
			restart := func(commands ...string) {
				t.Helper()
				if err := server.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, c := range commands {
					if out, err := exec.Command("sh", "-c", c, "sh", data).CombinedOutput(); err != nil {
						t.Fatalf("%s: %v: %s", c, err, out)
					}
				}
				if err := server.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				pool.Reset()
				await(t, "the server", func() bool { return pool.Ping(t.Context()) == nil })
			}
			restart(`cp -a "$1" "$1.copy"`)
			for _, r := range requests[10:] {
				ledgertest.Append(t, pool, r.Key, ledger.EventStarted)
			}
			readLast(t, pool, requests)
			restart(`rm -rf "$1"`, `mv "$1.copy" "$1"`)
			var db ledger.DB = pool
			if mutant {
				db = &rewritingDB{pool, incarnationCheck, onlyIncarnationCheck}
			}
			results := ledger.AppendEach(t.Context(), db, requests)
			holes := count(t, pool, holesSQL)
			if mutant != (holes > 0) {
				t.Errorf("%d events without the one before", holes)
			}
			for i, r := range results {
				if !mutant && ledger.IsConflict(r.Err) != (i >= 10) {
					t.Errorf("%d: %+v", i, r)
				}
			}
		})
	}
}

// The comparison in append_many_read.sql, and mutants that compare only the start of the server, or the incarnation.
const (
	incarnationCheck = "taskledger_internal.session_incarnation() = $12::text"
	startCheck       = "split_part(taskledger_internal.session_incarnation(), '/', -1) = " +
		"split_part($12::text, '/', -1)"
	onlyIncarnationCheck = "split_part(taskledger_internal.session_incarnation(), '/', -2) = " +
		"split_part($12::text, '/', -2)"
)

// AppendAndCommit in a database that has crashed since the last event was read appends nothing, whether the event was
// undone or not, and does not blame the handler. A mutant of the function, which is as before the crash, does.
func TestAppendAndCommitAfterACrash(t *testing.T) {
	for _, mutant := range []bool{false, true} {
		t.Run(fmt.Sprint("mutant ", mutant), func(t *testing.T) {
			t.Parallel()
			for range 5 { // as in TestAppendEachAfterACrash
				if commitOverACrash(t, mutant) {
					return
				}
			}
			t.Error("no crash undid an event")
		})
	}
}

// commitOverACrash reports whether the crash undid events that had been read.
func commitOverACrash(t *testing.T, isMutant bool) bool {
	t.Helper()
	pool, requests, isUndone := crashAfterReading(t)
	if !isUndone {
		return false
	}
	if isMutant {
		err := execute(t, pool, "create or replace function taskledger_internal.session_incarnation() returns text "+
			"language sql volatile return '"+requests[0].LastEvent().Incarnation+"'")
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range requests {
		tx, err := ledger.Begin(t.Context(), pool, &ledger.TxOptions{Guard: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.AppendAndCommit(t.Context(), r)
		switch {
		case isMutant:
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		case err == nil, errors.Is(err, ledger.ErrTransactionEnded), ledger.IsConflict(err) != (i >= 10):
			t.Errorf("%d, undone %v: %v", i, i >= 10, err)
		}
	}
	if holes := count(t, pool, holesSQL); isMutant != (holes > 0) {
		t.Errorf("%d events without the one before", holes)
	}
	return true
}

// A dump that is restored in the database of a session that lives on undoes commits. No outcome follows an undone
// event, although the session has noted the incarnation before.
func TestAppendsAfterARestoreInPlace(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, nil)
	address := server.URL(ledgertest.Database)
	run := func(name string, args ...string) {
		t.Helper()
		tool, err := server.Tool(name)
		if errors.Is(err, pgserver.ErrNotInstalled) {
			t.Skip(err)
		}
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	beginIncarnation(t, address)
	conn := connectIn(t, address, pgx.QueryExecModeCacheStatement)
	key := func(i int) ledger.Key { return ledger.Key{Kind: "append", BizID: ledger.BizID(fmt.Sprint(i))} }
	requests := make([]ledger.AppendRequest, 4)
	for i := range requests {
		requests[i] = ledgertest.Request(key(i), 1, ledger.EventSucceeded)
		ledgertest.Enqueue(t, conn, key(i), "")
	}
	dump := t.TempDir() + "/dump"
	run("pg_dump", "-Fc", "-f", dump, address)
	for _, r := range requests {
		ledgertest.Append(t, conn, r.Key, ledger.EventStarted)
	}
	readLast(t, conn, requests)
	before := requests[0].LastEvent().Incarnation
	run("pg_restore", "--clean", "--if-exists", "--dbname", address, dump)
	appended := func(requests []ledger.AppendRequest) {
		t.Helper()
		for i, r := range ledger.AppendEach(t.Context(), conn, requests[:2]) {
			if !ledger.IsConflict(r.Err) {
				t.Errorf("%d of a group: %+v", i, r)
			}
		}
		for i, r := range requests[2:] {
			tx := ledger.BeginOn(t.Context(), conn, &ledger.TxOptions{Guard: true})
			if _, err := tx.AppendAndCommit(t.Context(), r); !ledger.IsConflict(err) {
				t.Errorf("%d of a transaction: %v", i, err)
			}
		}
	}
	appended(requests)
	beginIncarnation(t, address)
	appended(requests)
	if holes := count(t, conn, holesSQL); holes > 0 {
		t.Errorf("%d events without the one before", holes)
	}
	readLast(t, conn, requests)
	if after := requests[0].LastEvent().Incarnation; after == before {
		t.Errorf("the session still notes %s", after)
	}
}

// holesSQL counts the events whose version lacks its predecessor.
const holesSQL = `
	select count(*) from taskledger.event e
	 where e.version > 1 and not exists (
	       select from taskledger.event b
	        where b.kind = e.kind and b.biz_id = e.biz_id and b.version = e.version - 1)`

// rewritingDB replaces a part of each statement that has it.
type rewritingDB struct {
	*pgxpool.Pool
	old, new string
}

func (db *rewritingDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return db.Pool.Query(ctx, strings.Replace(sql, db.old, db.new, 1), args...)
}
