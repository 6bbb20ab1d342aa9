package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Requests whose keys are locked cost two more statements, however many there are, and all others are appended: in
// every query mode, on one connection.
func TestAppendEachBesideLockedKeys(t *testing.T) {
	t.Parallel()
	for _, locked := range []int{1, 20, 150, 300} {
		for _, mode := range queryModes {
			t.Run(fmt.Sprint(locked, " ", mode), func(t *testing.T) {
				t.Parallel()
				pool := ledgertest.Pool(t)
				requests := make([]ledger.AppendRequest, 300)
				for i := range requests {
					requests[i] = appending(ledger.BizID(fmt.Sprintf(`"%d"`, i)), 1, ledger.EventStarted)
					requests[i].Actor = []string{"", `w'"\{}`}[i%2]
				}
				enqueueAll(t, pool, requests)
				rival := beginTx(t, pool, pgx.ReadCommitted)
				isLocked := func(i int) bool { return i*7%300 < locked }
				for i, r := range requests {
					if isLocked(i) {
						ledgertest.Append(t, rival, r.Key, ledger.EventStarted)
					}
				}
				db := &recordingDB{DB: connectIn(t, pool.Config().ConnString(), mode)}
				for i, r := range ledger.AppendEach(t.Context(), db, requests) {
					switch {
					case isLocked(i):
						code := wantErrorAs[*pgconn.PgError](t, r.Err).Code
						if code != "55P03" || !strings.Contains(r.Err.Error(), requests[i].Key.String()) {
							t.Errorf("the locked key %d: %v", i, r.Err)
						}
					case r.Err != nil || r.Event.Version != 2:
						t.Errorf("%d: %+v", i, r)
					}
				}
				if n := len(db.statements); n > 3 {
					t.Errorf("%d statements, want at most 3", n)
				}
				if err := rival.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				ledgertest.Check(t, pool)
			})
		}
	}
}

// Each role that appends finds the locked keys, even a worker that is limited to kinds.
func TestRolesFindLockedKeys(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	limited, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "pay")+" to $1")
	pools := map[string]*pgxpool.Pool{"limited": limited}
	for _, role := range []string{"worker", "relay", "operator"} {
		pools[role] = ledgertest.As(t, owner, role)
	}
	for role, pool := range pools {
		t.Run(role, func(t *testing.T) {
			requests := make([]ledger.AppendRequest, 40)
			for i := range requests {
				k := ledger.Key{Kind: "pay", BizID: ledger.BizID(fmt.Sprint(role, i))}
				requests[i] = ledgertest.Request(k, 1, ledger.EventBuried)
			}
			enqueueAll(t, owner, requests)
			rival := beginTx(t, owner, pgx.ReadCommitted)
			for _, r := range requests[20:] {
				ledgertest.Append(t, rival, r.Key, ledger.EventCancelled)
			}
			db := &recordingDB{DB: pool}
			for i, r := range ledger.AppendEach(t.Context(), db, requests) {
				if i >= 20 != pgerr.Is(r.Err, pgerr.LockNotAvailable) || i < 20 && r.Err != nil {
					t.Errorf("%d: %v", i, r.Err)
				}
			}
			if n := len(db.statements); n > 3 {
				t.Errorf("%d statements, want at most 3", n)
			}
			if err := rival.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// If no locked key is found, as where a transaction has locked one after the search, halves are sent: all other
// requests are appended.
func TestAppendEachHalvesWhatFails(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	var requests []ledger.AppendRequest
	for i := range 500 {
		requests = append(requests, appending(ledger.BizID(fmt.Sprint(i)), 1, ledger.EventSucceeded))
	}
	enqueueAll(t, pool, requests)
	rival := beginTx(t, pool, pgx.ReadCommitted)
	if _, err := ledger.Append(t.Context(), rival, requests[123]); err != nil {
		t.Fatal(err)
	}
	db := &rewritingDB{pool, "$5::text::text[]) n", "$5::text::text[]) n where false"}
	for i, r := range ledger.AppendEach(t.Context(), db, requests) {
		if i == 123 {
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

// A group whose tasks have all moved on costs two statements, and each request gets its own error.
func TestConflictsOfAGroupCostOneStatement(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	var requests []ledger.AppendRequest
	for i := range 300 {
		requests = append(requests, appending(ledger.BizID(fmt.Sprint(i)), 1, ledger.EventSucceeded))
	}
	enqueueAll(t, pool, requests)
	for i, r := range ledger.AppendEach(t.Context(), pool, requests) {
		if r.Err != nil {
			t.Fatalf("%d: %v", i, r.Err)
		}
	}
	requests = append(requests, appending("unknown", 1, ledger.EventSucceeded))
	db := &recordingDB{DB: pool}
	for i, r := range ledger.AppendEach(t.Context(), db, requests) {
		if i == len(requests)-1 {
			if !errors.Is(r.Err, ledger.ErrUnknownTask) {
				t.Errorf("the unknown task: %v", r.Err)
			}
			continue
		}
		conflict := wantErrorAs[*ledger.ConflictError](t, r.Err)
		want := &ledger.ConflictError{
			Key: requests[i].Key, Expected: 1, Found: 2, State: ledger.StateSucceeded,
		}
		if diff := difference.Of(want, conflict); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if n := len(db.statements); n > 3 { // the unknown task is one more
		t.Errorf("%d statements, want at most 3", n)
	}
}

// Two processes that append to the same tasks at once, as two schedulers that discard, do not undo each other's
// groups: together they need few statements.
func TestGroupsThatRace(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t)
	var requests []ledger.AppendRequest
	for i := range 1000 {
		r := appending(ledger.BizID(fmt.Sprint(i)), 1, ledger.EventDiscarded)
		r.Data = json.RawMessage(`{"reason":"raced"}`)
		requests = append(requests, r)
	}
	enqueueAll(t, pool, requests)
	dbs := [2]*recordingDB{{DB: pool}, {DB: pool}}
	var appended atomic.Int64
	var group sync.WaitGroup
	for _, db := range dbs {
		group.Go(func() {
			for _, r := range ledger.AppendEach(t.Context(), db, requests) {
				if r.Err == nil {
					appended.Add(1)
				} else if !ledger.IsConflict(r.Err) {
					t.Error(r.Err)
				}
			}
		})
	}
	group.Wait()
	if n := appended.Load(); n != int64(len(requests)) {
		t.Errorf("%d were appended, want each once", n)
	}
	if n := len(dbs[0].statements) + len(dbs[1].statements); n > 40 {
		t.Errorf("%d statements for two groups of the same 1000 tasks", n)
	}
	ledgertest.Check(t, pool)
}

// enqueueAll enqueues the task of each request.
func enqueueAll(t *testing.T, db ledger.DB, requests []ledger.AppendRequest) {
	t.Helper()
	var entries []ledger.Entry
	for _, r := range requests {
		entries = append(entries, ledger.Entry{Key: r.Key})
	}
	if _, err := ledger.EnqueueMany(t.Context(), db, entries); err != nil {
		t.Fatal(err)
	}
}

// If another transaction appends to a task and commits while the group waits for it, that request conflicts and
// the others are appended.
func TestAppendEachBesideACommit(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			conn := connectIn(t, pool.Config().ConnString(), pgx.QueryExecModeCacheStatement)
			pid := ledgertest.BackendPID(t, conn)
			for round := 0; ; round++ {
				var requests []ledger.AppendRequest
				for i := range size {
					r := appending(ledger.BizID(fmt.Sprintf("%d-%d", round, i)), 1, ledger.EventSucceeded)
					ledgertest.Enqueue(t, pool, r.Key, "")
					requests = append(requests, r)
				}
				contested := size / 2
				rival := beginTx(t, pool, pgx.ReadCommitted)
				if _, err := ledger.Append(t.Context(), rival, requests[contested]); err != nil {
					t.Fatal(err)
				}
				done := make(chan []ledger.AppendResult, 1)
				go func() { done <- ledger.AppendEach(t.Context(), conn, requests) }()
				for blocked := false; !blocked && len(done) == 0; {
					const sql = "select cardinality(pg_blocking_pids($1)) > 0"
					if err := pool.QueryRow(t.Context(), sql, pid).Scan(&blocked); err != nil {
						t.Fatal(err)
					}
				}
				if err := rival.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				results := <-done
				if pg := (*pgconn.PgError)(nil); errors.As(results[contested].Err, &pg) && pg.Code == "55P03" {
					continue // the lock timeout passed before the commit
				}
				for i, r := range results {
					if i == contested {
						wantErrorAs[*ledger.ConflictError](t, r.Err)
					} else if r.Err != nil || r.Event.Version != 2 {
						t.Errorf("%d: %+v", i, r)
					}
				}
				break
			}
			ledgertest.Check(t, pool)
		})
	}
}

// If the connection is lost after the commit, AppendEach returns the events and no conflict with itself.
func TestAppendEachWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	requests := []ledger.AppendRequest{f.request("b"), f.request("a"), f.request("c")}
	f.cutBehind(requests[2].Key)
	for i, r := range ledger.AppendEach(t.Context(), f.fragile, requests) {
		if r.Err != nil {
			t.Errorf("%s: %v", requests[i].Key, r.Err)
			continue
		}
		stored, err := ledger.History(t.Context(), f.pool, requests[i].Key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference.Of(stored[1:], []ledger.Event{r.Event}); diff != "" {
			t.Errorf("(-stored +returned):\n%s", diff)
		}
	}
	if f.cuts.Load() != 1 {
		t.Errorf("the connection was cut %d times", f.cuts.Load())
	}
	ledgertest.Check(t, f.pool)
}

// A request that is sent again returns the event that it has appended before, and no other event.
func TestAppendResent(t *testing.T) {
	t.Parallel()
	f := newCutFixture(t)
	r := f.request("1")
	r.Actor, r.Meta = "worker 1", json.RawMessage(`{"b": 1, "a": 1}`)
	f.cutBehind(r.Key)
	if _, err := ledger.Append(t.Context(), f.fragile, r); err == nil || !ledger.Retryable(err) {
		t.Fatalf("the cut connection: %v, want a retryable error", err)
	}
	wantErrorAs[*ledger.ConflictError](t, errorOf(ledger.Append(t.Context(), f.pool, r)))

	unexported.SetResent(&r)
	e, err := ledger.Append(t.Context(), f.pool, r)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := ledger.History(t.Context(), f.pool, r.Key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(stored[1:], []ledger.Event{e}); diff != "" {
		t.Errorf("(-stored +returned):\n%s", diff)
	}
	for name, change := range map[string]func(*ledger.AppendRequest){
		"type":     func(r *ledger.AppendRequest) { r.Type = ledger.EventProgressed },
		"actor":    func(r *ledger.AppendRequest) { r.Actor = "worker 2" },
		"no actor": func(r *ledger.AppendRequest) { r.Actor = "" },
		"data": func(r *ledger.AppendRequest) {
			r.Data = json.RawMessage(strings.Replace(string(r.Data), "{", "{ ", 1))
		},
		"no data": func(r *ledger.AppendRequest) { r.Data = nil },
		"meta":    func(r *ledger.AppendRequest) { r.Meta = nil },
	} {
		other := r
		change(&other)
		if _, err := ledger.Append(t.Context(), f.pool, other); err == nil {
			t.Errorf("a request with another %s was recognized", name)
		}
		if err := ledger.AppendEach(t.Context(), f.pool, []ledger.AppendRequest{other})[0].Err; err == nil {
			t.Errorf("a request with another %s was recognized in a group", name)
		}
	}
	ledgertest.Check(t, f.pool)
}

// cutFixture provides a pool, fragile, whose connections can be cut after an event is committed and before the client
// reads the result.
type cutFixture struct {
	t       *testing.T
	pool    *pgxpool.Pool
	fragile *pgxpool.Pool
	behind  atomic.Pointer[ledger.Key]
	cuts    atomic.Int64
}

func newCutFixture(t *testing.T) *cutFixture {
	t.Helper()
	f := &cutFixture{t: t, pool: ledgertest.Pool(t)}
	config := f.pool.Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &cutConn{Conn: conn, f: f}, err
	}
	var err error
	if f.fragile, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.fragile.Close)
	return f
}

func (f *cutFixture) request(id ledger.BizID) ledger.AppendRequest {
	f.t.Helper()
	r := appending(id, 1, ledger.EventSucceeded)
	r.Data = json.RawMessage(`{"worker": "w", "started_at": "2024-05-01T10:00:00Z"}`)
	ledgertest.Enqueue(f.t, f.pool, r.Key, "")
	return r
}

// cutBehind makes the next read of a fragile connection wait until version 2 of a task is committed, and then
// cuts the connection.
func (f *cutFixture) cutBehind(k ledger.Key) {
	f.t.Helper()
	if err := f.fragile.Ping(f.t.Context()); err != nil { // opens a connection
		f.t.Fatal(err)
	}
	f.behind.Store(&k)
}

type cutConn struct {
	net.Conn
	f *cutFixture
}

func (c *cutConn) Read(p []byte) (int, error) {
	if k := c.f.behind.Swap(nil); k != nil {
		await(c.f.t, "the commit", func() bool {
			task, err := ledger.Load(c.f.t.Context(), c.f.pool, *k)
			return err == nil && task.Version == 2
		})
		c.f.cuts.Add(1)
		_ = c.Conn.Close()
	}
	return c.Conn.Read(p)
}
