package systemtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/relays"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// recovered is a depot whose PostgreSQL is replaced: by a backup, a dump or an upgrade.
type recovered struct {
	*depot
	stops []func()
}

// newRecovered returns a depot with these settings of PostgreSQL, whose services and workers of parcels run.
func newRecovered(t *testing.T, settings map[string]string) *recovered {
	t.Helper()
	d := &depot{t: t, pg: ledgertest.Cluster(t, settings)}
	d.db = d.pool(ledgertest.App, "relay", "operator")
	if _, err := d.db.Exec(t.Context(), `create table effect (kind text not null, biz_id text not null)`); err != nil {
		t.Fatal(err)
	}
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	d.nats = server
	r := &recovered{depot: d}
	r.serve()
	return r
}

// serve starts the services and the workers of parcels.
func (r *recovered) serve() {
	r.t.Helper()
	r.run("relay", newRelay)
	r.run("projector", newProjector)
	r.run("dispatcher", newDispatcher)
	r.run("parcels", sends)
}

func (r *recovered) run(name string, build newRunner) {
	r.t.Helper()
	r.stops = append(r.stops, r.startStoppable(name, build))
}

// stop stops everything that runs.
func (r *recovered) stop() {
	for _, stop := range r.stops {
		stop()
	}
	r.stops = nil
}

// finished enqueues parcels and waits until they are sent.
func (r *recovered) finished(prefix string, n int) {
	r.t.Helper()
	for i := range n {
		r.enqueue(parcel, ledger.BizID(fmt.Sprintf("%s-%d", prefix, i)))
	}
	r.await(prefix+" to be done", func() bool {
		return r.count(fmt.Sprintf(`select count(*) from effect where biz_id like '%s-%%'`, prefix)) == n
	})
}

// letters enqueues tasks that have no worker.
func (r *recovered) letters(n int) {
	r.t.Helper()
	for i := range n {
		r.enqueue(letter, ledger.BizID(fmt.Sprintf("waiting-%d", i)))
	}
}

// published waits until all events are on the stream.
func (r *recovered) published() {
	r.t.Helper()
	r.await("all events to be published", func() bool { return r.count(`select count(*) from taskledger.outbox`) == 0 })
}

// moveTo makes another server that of the depot.
func (r *recovered) moveTo(server *pgserver.Server, err error) {
	r.t.Helper()
	if errors.Is(err, pgserver.ErrNotInstalled) {
		r.t.Skip(err)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = server.Close() })
	r.adopt(server)
}

func (r *recovered) adopt(server *pgserver.Server) {
	r.t.Helper()
	r.await("the server to be a primary", func() bool {
		db, err := pgxpool.New(r.t.Context(), server.URL(ledgertest.Database))
		if err != nil {
			return false
		}
		defer db.Close()
		var isStandby bool
		return db.QueryRow(r.t.Context(), "select pg_is_in_recovery()").Scan(&isStandby) == nil && !isStandby
	})
	r.pg = server
	r.db = r.pool(ledgertest.App, "relay", "operator")
}

// resume starts everything, and checks that each task of the ledger, lost ones not, has one effect in the end. It
// returns the time until new work was done.
func (r *recovered) resume(tasks int) time.Duration {
	r.t.Helper()
	began := time.Now()
	r.serve()
	r.run("letters", handles(letter, func(*workers.Job) {}))
	r.finished("new", 1)
	newWork := time.Since(began)
	r.await("every task to be done", func() bool {
		return r.count(`select count(distinct (kind, biz_id)) from effect`) == tasks+1
	})
	if n := r.count(`select count(*) from effect`); n != tasks+1 {
		r.t.Errorf("%d effects of %d tasks", n, tasks+1)
	}
	if n := r.count(`select count(*) from taskledger.event
		where version = 1 and kind not like 'taskledger.%'`); n != tasks+1 {
		r.t.Errorf("the ledger has %d tasks, want %d", n, tasks+1)
	}
	r.await("all to be projected", func() bool {
		return r.count(`select count(*) from taskledger.task
			where state = 'succeeded' and kind not like 'taskledger.%'`) == tasks+1
	})
	ledgertest.Check(r.t, r.db)
	return newWork
}

// A base backup and archived WAL are recovered to a moment before tasks were enqueued, run and finished. The services
// continue by themselves: what was finished before the moment does not run again, and what was unfinished then runs
// once, also if it had been finished after it. Keys that are lost can be used again.
func TestRecoveryToAPointInTime(t *testing.T) {
	t.Parallel()
	archive, err := os.MkdirTemp("", "taskledger-archive-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(archive) })
	if err := os.Chmod(archive, 0o777); err != nil { // the server may run as another user
		t.Fatal(err)
	}
	file := filepath.Join(archive, "%f")
	r := newRecovered(t, map[string]string{"archive_mode": "on", "archive_command": "cp %p " + file})
	r.finished("before", 20)
	backup, err := r.pg.Backup(t.Context())
	if errors.Is(err, pgserver.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.finished("until", 20)
	r.letters(10)
	r.published()
	var target, segment string
	if err := r.db.QueryRow(t.Context(), "select clock_timestamp()::text").Scan(&target); err != nil {
		t.Fatal(err)
	}
	r.run("letters", handles(letter, func(*workers.Job) {})) // what they do is lost
	r.finished("lost", 20)
	r.await("the letters to be done", func() bool {
		return r.count(`select count(*) from effect where kind = 'letter.send'`) == 10
	})
	owner := ledgertest.As(t, r.db, ledgertest.Owner)
	if err := owner.QueryRow(t.Context(), "select pg_walfile_name(pg_switch_wal())").Scan(&segment); err != nil {
		t.Fatal(err)
	}
	r.await("the WAL to be archived", func() bool {
		_, err := os.Stat(filepath.Join(archive, segment))
		return err == nil
	})
	r.stop()
	if err := r.pg.Kill(); err != nil {
		t.Fatal(err)
	}

	r.moveTo(backup.Start(t.Context(), map[string]string{
		"restore_command": "cp " + file + " %p", "recovery_target_time": target, "recovery_target_action": "promote",
	}))
	t.Logf("tasks lost: 20, those that were enqueued after the moment; new work was done after %s", r.resume(50))
	r.finished("lost", 20)
}

// restored dumps the database with pg_dump, loads it into another cluster, where transaction ids are lower, and returns
// that. Tasks that are done later are lost.
func (r *recovered) restored(arguments ...string) {
	r.t.Helper()
	dump := r.tool(r.pg, nil, "pg_dump", append([]string{r.pg.URL(ledgertest.Database)}, arguments...)...)
	r.finished("lost", 5)
	r.stop()
	if err := r.pg.Kill(); err != nil {
		r.t.Fatal(err)
	}
	to := ledgertest.Cluster(r.t, nil)
	r.tool(to, nil, "psql", to.URL("postgres"), "-qc", "drop database "+ledgertest.Database)
	r.tool(to, nil, "psql", to.URL("postgres"), "-qc", "create database "+ledgertest.Database)
	r.tool(to, dump, "psql", to.URL(ledgertest.Database), "-q", "-v", "ON_ERROR_STOP=1")
	r.adopt(to)
}

// tool runs a client tool of PostgreSQL and returns its output.
func (r *recovered) tool(server *pgserver.Server, input []byte, name string, arguments ...string) []byte {
	r.t.Helper()
	path, err := server.Tool(name)
	if errors.Is(err, pgserver.ErrNotInstalled) {
		r.t.Skip(err)
	}
	cmd := exec.CommandContext(r.t.Context(), path, arguments...)
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", name, err, stderr.Bytes())
	}
	return output
}

// A dump is restored into another cluster, with and without the rows of the cursors. Relay and projector refuse, their
// errors name the command that cures it. Then each task of the dump has one effect.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string][]string{
		"with cursors": nil, "without cursors": {"--exclude-table-data=taskledger.cursor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecovered(t, nil)
			r.finished("before", 20)
			r.letters(10)
			r.published()
			kept := r.sealed(nil)
			r.restored(arguments...)
			for name, build := range map[string]newRunner{"relay": newRelay, "projector": newProjector} {
				var origin *feed.OriginError
				if err := r.refusal(name, build); !errors.As(err, &origin) {
					t.Fatalf("the %s ended with %v, want a refusal", name, err)
				}
			}
			owner := ledgertest.As(t, r.db, ledgertest.Owner)
			if needed, err := feed.Rebase(t.Context(), owner, nil); err != nil || !needed {
				t.Fatalf("rebase: %t, %v", needed, err)
			}
			kept = r.sealed(kept)
			t.Logf("tasks lost: 5, those that were enqueued after the dump; new work was done after %s", r.resume(30))
			r.sealed(kept)
		})
	}
}

// sealed seals what is committed, and verifies that the ledger still has the trees of earlier checkpoints. It returns
// them with the new one.
func (r *recovered) sealed(kept []seal.Checkpoint) []seal.Checkpoint {
	r.t.Helper()
	db := ledgertest.As(r.t, r.db, "archiver")
	result, err := seal.Run(r.t.Context(), db, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	kept = append(kept, result.Checkpoint)
	report, err := seal.Verify(r.t.Context(), db, &seal.VerifyOptions{Checkpoints: kept})
	if err != nil || !report.IsValid() {
		r.t.Errorf("the seal is broken: %v, %+v", err, report)
	}
	var events int64
	err = db.QueryRow(r.t.Context(), "select count(*) from taskledger.event").Scan(&events)
	if err != nil || result.Checkpoint.Size == 0 || result.Checkpoint.Size > events {
		r.t.Errorf("%d events are sealed of %d, %v", result.Checkpoint.Size, events, err)
	}
	return kept
}

// refusal runs a service until it ends.
func (r *recovered) refusal(name string, build newRunner) error {
	r.t.Helper()
	nc, err := outbox.Connect(r.nats.URL())
	if err != nil {
		r.t.Fatal(err)
	}
	defer nc.Close()
	service, err := build(r.pool(roleOf(name)), nc, slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	return service.Run(ctx)
}

// upgradeVariable is the environment variable with the directory of the binaries of a newer PostgreSQL, with its client
// tools.
const upgradeVariable = "TASKLEDGER_POSTGRES_UPGRADE"

// pg_upgrade moves the data into a cluster with another system identifier, and into a newer major version if its
// binaries can be had. The services continue by themselves.
func TestUpgradeOfPostgreSQL(t *testing.T) {
	t.Parallel()
	t.Run("same version", func(t *testing.T) {
		t.Parallel()
		upgrades(t, "")
	})
	t.Run("newer version", func(t *testing.T) {
		t.Parallel()
		binaries := os.Getenv(upgradeVariable)
		if binaries == "" {
			t.Skip("SKIPPED without " + upgradeVariable)
		}
		upgrades(t, binaries)
	})
}

// upgrades moves a depot by the pg_upgrade of these binaries.
func upgrades(t *testing.T, binaries string) {
	t.Helper()
	r := newRecovered(t, nil)
	r.finished("before", 20)
	r.letters(10)
	kept := r.sealed(nil)
	before := r.version()
	r.stop()
	if err := r.pg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.moveTo(r.pg.Upgrade(t.Context(), binaries))
	took := r.resume(30)
	r.sealed(kept)
	t.Logf("from %s to %s no task is lost; new work was done after %s", before, r.version(), took)
}

// version returns the version of the depot's PostgreSQL.
func (r *recovered) version() string {
	r.t.Helper()
	var version string
	if err := r.db.QueryRow(r.t.Context(), "show server_version").Scan(&version); err != nil {
		r.t.Fatal(err)
	}
	return version
}

// A base backup is started as it is, without archived WAL, as the snapshot of a disk is: the timeline stays the same.
// If what is lost was recorded within 30 s, the services continue by themselves, as after a crash. Otherwise the relay
// refuses, because the database may be a copy whose original still works, and its error names the command that helps.
func TestBackupWithoutWAL(t *testing.T) {
	t.Parallel()
	for name, isLong := range map[string]bool{"of seconds": false, "of an hour": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecovered(t, nil)
			r.finished("before", 20)
			r.letters(10)
			r.published()
			backup, err := r.pg.Backup(t.Context())
			if errors.Is(err, pgserver.ErrNotInstalled) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if isLong {
				r.stop()
				r.enqueue(parcel, "early")
				ledgertest.ExecAsOwner(t, r.db, `
					set session_replication_role = replica;
					update taskledger.event set recorded_at = recorded_at - interval '1 hour'
					 where biz_id = 'early'`)
				r.serve()
			}
			r.finished("lost", 40)
			r.published()
			r.stop()
			if err := r.pg.Kill(); err != nil {
				t.Fatal(err)
			}
			r.moveTo(backup.Start(t.Context(), nil))
			if isLong {
				var foreign *outbox.ForeignWriterError
				if err := r.refusal("relay", newRelay); !errors.As(err, &foreign) ||
					!strings.Contains(err.Error(), "taskledger rebuild stream") {
					t.Fatalf("the relay ended with %v, want a refusal with its cure", err)
				}
				err := relays.RebuildStream(t.Context(), r.pool("relay", "operator"), r.jetStream(), nil)
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("new work was done after %s", r.resume(30))
		})
	}
}
