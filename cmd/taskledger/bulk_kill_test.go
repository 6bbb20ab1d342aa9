package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/reserve"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// bulkGate is a database with tasks of the kind a.b, in which an act stops before its event of a number, so that its
// process can be killed there.
type bulkGate struct {
	t       *testing.T
	address string
	owner   *pgxpool.Pool
	lock    *pgxpool.Conn
}

// bulkLock is the advisory lock at which an act stops. A test holds it.
const bulkLock = 4711

func newBulkGate(t *testing.T, tasks int) *bulkGate {
	t.Helper()
	g := &bulkGate{t: t, address: ledgertest.URL(t, "relay", "reader", "api", "operator")}
	var err error
	if g.owner, err = pgxpool.New(t.Context(), ledgertest.URLAs(t, g.address, ledgertest.Owner)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.owner.Close)
	g.exec(`create table public.gate (at bigint not null)`)
	g.exec(`insert into public.gate values (0)`)
	g.exec(`create sequence public.passed`)
	g.exec(`create function public.gate() returns trigger language plpgsql security definer as $$
		begin
		  if new.type <> 'enqueued' and new.kind = 'a.b'
		     and nextval('public.passed') = (select g.at from public.gate g) then
		    while not pg_try_advisory_xact_lock_shared(4711) loop
		      perform pg_sleep(0.01);
		    end loop;
		  end if;
		  return new;
		end $$`)
	g.exec(`create trigger gate before insert on taskledger.event for each row execute function public.gate()`)
	g.exec(`insert into taskledger.event (version, attempt, shard, type, kind, biz_id)
		select 1, 0, 0, 'enqueued', 'a.b', 'order-' || i from generate_series(1, $1::integer) i`, tasks)
	if g.lock, err = g.owner.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.lock.Release)
	return g
}

func (g *bulkGate) exec(sql string, args ...any) {
	g.t.Helper()
	if _, err := g.owner.Exec(g.t.Context(), sql, args...); err != nil {
		g.t.Fatalf("%s: %v", sql, err)
	}
}

func (g *bulkGate) count(sql string, args ...any) (n int) {
	g.t.Helper()
	if err := g.owner.QueryRow(g.t.Context(), sql, args...).Scan(&n); err != nil {
		g.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (g *bulkGate) await(what string, isSo func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(4 * patience); !isSo(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("still waiting until %s", what)
		}
	}
}

// close has the next act stop before its n-th event.
func (g *bulkGate) close(n int) {
	g.t.Helper()
	if _, err := g.lock.Exec(g.t.Context(), `select pg_advisory_lock($1)`, bulkLock); err != nil {
		g.t.Fatal(err)
	}
	g.exec(`select setval('public.passed', 1, false)`)
	g.exec(`update public.gate set at = $1`, n)
}

// kill kills the process when it has stopped at the gate. The session that it leaves behind is ended at once, or goes
// on until it finds that its client has gone: a statement outside of a transaction then commits.
func (g *bulkGate) kill(process *exec.Cmd, goesOn bool) {
	g.t.Helper()
	const stopped = `select count(*) from pg_stat_activity a
		where a.datname = current_database() and a.wait_event = 'PgSleep'`
	g.await("the act has stopped", func() bool { return g.count(stopped) == 1 })
	if err := process.Process.Kill(); err != nil {
		g.t.Fatal(err)
	}
	_ = process.Wait()
	if status, ok := process.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		g.t.Fatalf("the process ended with %s", process.ProcessState)
	}
	if !goesOn {
		g.await("the session is ended", func() bool {
			return g.count(`select count(pg_terminate_backend(a.pid)) from pg_stat_activity a
				where a.datname = current_database() and a.wait_event = 'PgSleep'`) == 1
		})
	}
	if _, err := g.lock.Exec(g.t.Context(), `select pg_advisory_unlock($1)`, bulkLock); err != nil {
		g.t.Fatal(err)
	}
	g.await("the transaction has ended", func() bool {
		return g.count(`select count(*) from pg_locks l
			where l.relation = 'taskledger.event'::regclass and l.mode = 'RowExclusiveLock'`) == 0
	})
	g.exec(`update public.gate set at = 0`)
}

// project runs a projector until all events are projected.
func (g *bulkGate) project() {
	g.t.Helper()
	p, err := projector.New(projector.Config{DB: g.owner})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(g.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	g.await("all is projected", func() bool {
		lag, err := projection.ReadLag(g.t.Context(), g.owner)
		return err == nil && lag.Events == 0
	})
	stop()
	if err := <-done; err != nil {
		g.t.Fatal(err)
	}
}

// acted returns the number of events of an act.
func (g *bulkGate) acted(event string) int {
	g.t.Helper()
	return g.count(`select count(*) from taskledger.event e where e.kind = 'a.b' and e.type::text = $1`, event)
}

// wantOnce checks that each task has one event of each act, with actor and reason, and no gap in its versions.
func (g *bulkGate) wantOnce(tasks int, actor, reason string, events ...string) {
	g.t.Helper()
	for _, event := range events {
		once := g.count(`
			select count(*) from (
			  select from taskledger.event e
			   where e.kind = 'a.b' and e.type::text = $1
			   group by e.biz_id
			  having count(*) = 1 and min(e.actor) = $2 and min(e.data ->> 'reason') = $3) t`, event, actor, reason)
		if all := g.acted(event); once != tasks || all != tasks {
			g.t.Errorf("%s: %d events, %d tasks with one of %s and its reason; want %d", event, all, once, actor, tasks)
		}
	}
	gaps := g.count(`
		select count(*) from (
		  select from taskledger.event e where e.kind = 'a.b'
		   group by e.biz_id having max(e.version) <> count(*) or count(*) <> $1) t`, len(events)+1)
	if gaps != 0 {
		g.t.Errorf("%d tasks have other versions than 1 to %d", gaps, len(events)+1)
	}
}

// A command for many tasks that is killed in the middle, twice, and run again acts once upon each task, although the
// projection is behind.
func TestKilledBulkCommandsActOnce(t *testing.T) {
	t.Parallel()
	const tasks, batch, reason = 3500, 1000, "partner is down"
	g := newBulkGate(t, tasks)
	for _, act := range []struct {
		args  []string
		event string
	}{
		{args: []string{"bury", "--kind", "a.b"}, event: "buried"},
		{args: []string{"release", "--all"}, event: "released"},
		{args: []string{"cancel", "--all"}, event: "cancelled"},
	} {
		g.project()
		start := func() *exec.Cmd {
			args := append(slices.Clone(act.args), "--actor", "alice", "--reason", reason)
			cmd := exec.Command("taskledger", args...)
			cmd.Env = append(os.Environ(), envDatabaseURL+"="+g.address, envNATSURL+"=", envLogins+"=")
			cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			return cmd
		}
		want := 0
		for _, goesOn := range []bool{false, true} {
			g.close(batch + batch/2)
			g.kill(start(), goesOn)
			want += batch // the one that was being written is rolled back
			if n := g.acted(act.event); n != want {
				t.Errorf("%s: %d tasks after a kill, want %d", act.event, n, want)
			}
		}
		if err := start().Wait(); err != nil {
			t.Fatalf("%s: %v", act.event, err)
		}
	}
	g.wantOnce(tasks, "alice", reason, "buried", "released", "cancelled")
}

// serve starts a process of serve at an address.
func (g *bulkGate) serve(listen string, natsURL string) *exec.Cmd {
	g.t.Helper()
	cmd := exec.Command("taskledger", "serve", "--listen", listen, "--http-anonymous")
	cmd.Env = append(os.Environ(), envDatabaseURL+"="+g.address, envNATSURL+"="+natsURL, envLogins+"=")
	cmd.Stdout, cmd.Stderr = io.Discard, g.t.Output()
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

var formTokenField = regexp.MustCompile(`name="csrf" value="([0-9a-f]{64})"`)

// A server that is killed while the console's form changes many tasks, twice, and gets the same form again, changes
// each task once.
func TestKilledBulkPageActsOnce(t *testing.T) {
	t.Parallel()
	const tasks, each, reason = 400, 100, "order withdrawn"
	g := newBulkGate(t, tasks)
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	port, err := reserve.Port()
	if err != nil {
		t.Fatal(err)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	page := func(method, path string, form url.Values) (string, error) {
		body := strings.NewReader(form.Encode())
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+listen+path, body)
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := browser.Do(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
		}
		return string(text), err
	}
	form := url.Values{"act": {"cancel"}, "kind": {"a.b"}, "state": {"available"}, "reason": {reason}}
	for kill, goesOn := range []bool{false, true} {
		process := g.serve(listen, server.URL())
		g.await("the page lists the tasks", func() bool {
			text, err := page(http.MethodGet, "/tasks?state=available&kind=a.b", nil)
			found := formTokenField.FindStringSubmatch(text)
			if err != nil || found == nil {
				return false
			}
			form.Set("csrf", found[1])
			form.Del("confirm")
			text, err = page(http.MethodPost, "/bulk", form)
			return err == nil && (kill > 0 || strings.Contains(text, fmt.Sprint(tasks, " tasks match now")))
		})
		g.close(each + 1)
		form.Set("confirm", "yes")
		answered := make(chan error, 1)
		go func() {
			_, err := page(http.MethodPost, "/bulk", form)
			answered <- err
		}()
		g.kill(process, goesOn)
		if err := <-answered; err == nil {
			t.Error("the killed server has answered")
		}
		want := each * (kill + 1)
		if goesOn {
			want++
		}
		if n := g.acted("cancelled"); n != want {
			t.Errorf("%d tasks after kill %d, want %d", n, kill+1, want)
		}
	}
	g.serve(listen, server.URL())
	g.await("the server answers", func() bool {
		_, err := page(http.MethodPost, "/bulk", form)
		return err == nil
	})
	g.wantOnce(tasks, "anonymous", reason, "cancelled")
}
