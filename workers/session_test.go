package workers_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// sessionChange is SQL that changes the session of its handler, and a query whose text shows the change.
type sessionChange struct{ sql, probe string }

var sessionChanges = map[string]sessionChange{
	"a setting": {sql: "set search_path = tenant_a", probe: "show search_path"},
	"a setting by a function": {
		sql: "select set_config('statement_timeout', '4321', false)", probe: "show statement_timeout"},
	"a custom setting": {
		sql: "set app.tenant = 'a'", probe: "select coalesce(current_setting('app.tenant', true), '')"},
	"a role": {sql: "set role session_tenant", probe: "select (current_user = session_user)::text"},
	"an advisory lock": {sql: "select pg_advisory_lock(40)", probe: `
		select count(*)::text from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and objid = 40`},
	"a temporary table": {sql: "create temporary table effect (biz_id text, attempt integer)",
		probe: "select (to_regclass('pg_temp.effect') is null)::text"},
	"a channel": {sql: "listen changed", probe: "select count(*)::text from pg_listening_channels()"},
}

// prober registers a handler that changes its session, and a handler that runs later on the same connection and probes
// it.
type prober struct {
	pid    atomic.Int32 // of the connection whose session was changed
	probed chan string
}

func (p *prober) run(ctx context.Context, tx pgx.Tx, job *workers.Job, c sessionChange, err error) error {
	var pid int32
	if err := tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	if strings.HasPrefix(string(job.BizID), "change") {
		p.pid.Store(pid)
		if _, err := tx.Exec(ctx, c.sql); err != nil {
			return err
		}
		return err
	}
	var text string
	if err := tx.QueryRow(ctx, c.probe).Scan(&text); err != nil {
		return err
	}
	if pid == p.pid.Load() {
		select {
		case p.probed <- text:
		default:
		}
	}
	return nil
}

// A handler may set anything for its session. The next one on that connection, and the worker's own statements, find
// the session as it was, whether the handler succeeds or fails.
func TestSessionOfAHandlerEndsWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	makeTenant(t, b.DB)
	b.Dispatch()
	for name, change := range sessionChanges {
		for _, result := range []error{nil, errBoom} {
			t.Run(fmt.Sprint(name, ", then ", result), func(t *testing.T) {
				t.Parallel()
				b := b.in(t)
				p := &prober{probed: make(chan string, 1)}
				db := ledgertest.As(t, b.DB) // a pool of this worker alone
				b.Work(workers.Config{DB: db}, b.exactly(
					func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
						return p.run(ctx, tx, job, change, result)
					}, &workers.KindConfig{Slots: 1, Retry: ledger.RetryPolicy{Attempts: 1}}))
				want := probeOf(t, b.DB, change)
				k := b.Enqueue("change")
				b.Await("the handler to end", func() bool { return b.Task(k).State.Finished() })
				for i := 0; ; i++ {
					k := b.Enqueue(fmt.Sprintf("probe-%d", i))
					b.AwaitState(k, ledger.StateSucceeded)
					select {
					case got := <-p.probed:
						if got != want {
							t.Errorf("the next handler found %q, want %q", got, want)
						}
						return
					default:
					}
				}
			})
		}
	}
}

// tenantRole guards the memberships in session_tenant, which all tests share. In PostgreSQL two grants of one
// membership do not wait for each other.
var tenantRole sync.Mutex

// makeTenant makes the role session_tenant, which the login of tests may set, with no right but in its schema.
func makeTenant(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	tenantRole.Lock()
	defer tenantRole.Unlock()
	login := pgx.Identifier{db.Config().ConnConfig.User}.Sanitize()
	worker := pgx.Identifier{ledgertest.As(t, db).Config().ConnConfig.User}.Sanitize()
	ledgertest.ExecAsOwner(t, db, `
		do $$ begin
		  create role session_tenant;
		exception when duplicate_object or unique_violation then null;
		end $$`)
	ledgertest.ExecAsOwner(t, db, fmt.Sprintf(`
		grant session_tenant to %s, %s;
		create schema tenant_a;
		grant usage on schema tenant_a to session_tenant;
		create table tenant_a.invoice (tenant text not null default current_user, biz_id text primary key);
		alter table tenant_a.invoice enable row level security;
		create policy own on tenant_a.invoice using (tenant = current_user);
		grant select, insert on tenant_a.invoice to session_tenant;`, login, worker))
}

// probeOf returns a new session's answer.
func probeOf(t *testing.T, db *pgxpool.Pool, c sessionChange) (text string) {
	t.Helper()
	conn := try(pgx.ConnectConfig(t.Context(), db.Config().ConnConfig))(t)
	defer func() { _ = conn.Close(context.Background()) }()
	if err := conn.QueryRow(t.Context(), c.probe).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// Settings that a pool makes for each of its connections are as before after a handler.
func TestSettingsOfThePoolAreRestored(t *testing.T) {
	t.Parallel()
	like := servicetest.Pool(t)
	makeTenant(t, like)
	config := like.Config().Copy()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `set search_path = public, "tenant_a"; set statement_timeout = '55s'`)
		return err
	}
	b := setupOn(t, try(pgxpool.NewWithConfig(t.Context(), config))(t))
	t.Cleanup(b.DB.Close)
	b.Dispatch()
	change := sessionChange{sql: "set search_path = nowhere; set statement_timeout = 0",
		probe: "select current_setting('search_path') || ' ' || current_setting('statement_timeout')"}
	p := &prober{probed: make(chan string, 1)}
	b.Work(workers.Config{DB: b.DB}, b.exactly(
		func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
			return p.run(ctx, tx, job, change, nil)
		}, &workers.KindConfig{Slots: 1}))
	b.AwaitState(b.Enqueue("change"), ledger.StateSucceeded)
	for i := 0; ; i++ {
		b.AwaitState(b.Enqueue(fmt.Sprintf("probe-%d", i)), ledger.StateSucceeded)
		select {
		case got := <-p.probed:
			if want := `public, tenant_a 55s`; got != want {
				t.Errorf("the next handler found %q, want %q", got, want)
			}
			return
		default:
		}
	}
}

// A handler may work under a role without rights in the ledger: row-level security by role. Its success is recorded
// with the role of the worker, in each query mode.
func TestHandlerUnderAnotherRole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	makeTenant(t, b.DB)
	owner := ledgertest.As(t, b.DB, ledgertest.Owner)
	b.Dispatch()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		for _, set := range []string{"set local role session_tenant", "set role session_tenant"} {
			t.Run(mode.String()+", "+set, func(t *testing.T) {
				t.Parallel()
				b := b.in(t)
				config := b.DB.Config()
				config.ConnConfig.DefaultQueryExecMode = mode
				db := try(pgxpool.NewWithConfig(t.Context(), config))(t)
				t.Cleanup(db.Close)
				b.Work(workers.Config{DB: db}, b.exactly(
					func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
						if _, err := tx.Exec(ctx, set); err != nil {
							return err
						}
						const insert = "insert into tenant_a.invoice (biz_id) values ($1)"
						if _, err := tx.Exec(ctx, insert, "exec "+job.Key.String()); err != nil {
							return err
						}
						return workers.AtCommit(ctx, tx, insert, "at commit "+job.Key.String())
					}, &workers.KindConfig{Retry: ledger.RetryPolicy{Attempts: 1}}))
				b.EnqueueMany(20)
				b.AwaitSucceeded(20)
				var rows int
				err := owner.QueryRow(t.Context(), "select count(*) from tenant_a.invoice "+
					"where tenant = 'session_tenant' and biz_id like $1", "% "+string(b.Kind().Name())+"/%").Scan(&rows)
				if err != nil || rows != 40 {
					t.Errorf("%d rows of the tenant, want 40, %v", rows, err)
				}
				got := one[string](b, `select string_agg(distinct l.name, ' ') from taskledger.event e
					join taskledger.logins l on l.id = e.login_id where e.type = 'succeeded' and e.kind = $1`,
					string(b.Kind().Name()))
				if want := db.Config().ConnConfig.User; got != want {
					t.Errorf("successes of login %s, want %s", got, want)
				}
			})
		}
	}
}

// The same in the transaction of a caller.
func TestCallerUnderAnotherRole(t *testing.T) {
	t.Parallel()
	b := full(t)
	makeTenant(t, b.DB)
	c := b.caller(func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
		_, err := tx.Exec(ctx, "set local role session_tenant")
		if err == nil {
			_, err = tx.Exec(ctx, "insert into tenant_a.invoice (biz_id) values ($1)", string(job.BizID))
		}
		return err
	}, nil)
	if answer, err := b.buy(c, "o-1", true); err != nil || answer.State != ledger.StateSucceeded {
		t.Errorf("%+v, %v", answer, err)
	}
}

// The error of a handler that resets its session names the statement.
func TestHandlerThatResetsItsSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	for sql, want := range map[string]string{"reset all": "RESET ALL", "deallocate all": "DEALLOCATE ALL"} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			db := ledgertest.As(t, b.DB)
			b.Work(workers.Config{DB: db}, b.exactly(
				func(ctx context.Context, tx pgx.Tx, job *workers.Job, a orderArgs) error {
					if err := insertEffect(ctx, tx, job, a); err != nil || job.BizID != "resets" {
						return err
					}
					_, err := tx.Exec(ctx, sql)
					return err
				}, &workers.KindConfig{Slots: 1, Retry: ledger.RetryPolicy{Attempts: 1}}))
			k := b.Enqueue("resets")
			b.AwaitState(k, ledger.StateDead)
			if reason := b.Task(k).Error; !strings.Contains(reason, want) {
				t.Errorf("error %q does not name %s", reason, want)
			}
			b.EnqueueMany(5)
			b.AwaitSucceeded(5)
		})
	}
}

// A statement whose plan became stale, because its table has got a column, uses no attempt.
func TestChangedTableUsesNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, a orderArgs) error {
		rows, err := tx.Query(ctx, "select * from effect where biz_id = $1", string(job.BizID))
		if err != nil {
			return err
		}
		if rows.Close(); rows.Err() != nil {
			return rows.Err()
		}
		return insertEffect(ctx, tx, job, a)
	}, &workers.KindConfig{Slots: 1, Retry: ledger.RetryPolicy{Attempts: 1}}))
	b.AwaitState(b.Enqueue("before"), ledger.StateSucceeded)
	ledgertest.ExecAsOwner(t, b.DB, "alter table effect add column more text")
	b.AwaitState(b.Enqueue("after"), ledger.StateSucceeded)
	b.WantOneEffect(ledger.Key{Kind: order.Name(), BizID: "after"})
}
