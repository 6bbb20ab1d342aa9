package erasure_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/erasure"
	"github.com/taskledger/taskledger/internal/pgserver"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

var recoversEarly = flag.Bool("recovery", false, "recover also to before all runs of the archive")

// marking records a restore point of the database between the files of a run and the removal.
type marking struct {
	archiver.Files

	mark func() error
}

// Store implements [archiver.Files].
func (m marking) Store(ctx context.Context, tasks []archiver.Task) (string, error) {
	file, err := m.Files.Store(ctx, tasks)
	return file, errors.Join(err, m.mark())
}

// on returns the fixture of another server, with the same archive.
func (f *fixture) on(server *pgserver.Server) *fixture {
	f.T.Helper()
	connect := func(url string) *pgxpool.Pool {
		db := servicetest.Try(pgxpool.New(f.T.Context(), url))(f.T)
		f.T.Cleanup(db.Close)
		return db
	}
	url := server.URL(ledgertest.Database)
	db := connect(ledgertest.URLAs(f.T, url, ledgertest.App, "relay", "operator"))
	return &fixture{servicetest.NewDatabaseOn(f.T, db), f.archive, connect(url)}
}

// run archives all finished tasks and returns the report.
func (f *fixture) run(place string, wrap func(archiver.Files) archiver.Files) (archiver.Report, error) {
	f.T.Helper()
	f.Project()
	db := f.As("archiver")
	files := archiver.In(db, archive.Directory(place), place)
	if wrap != nil {
		files = wrap(files)
	}
	return archiver.Run(f.Context(), db, archiver.Options{Files: files})
}

// histories returns the types of all events of these tasks, one task a line, wherever they are. A star marks a text.
func (f *fixture) histories(ids ...string) string {
	f.T.Helper()
	lines := make([]string, len(ids))
	for i, id := range ids {
		events, err := ledger.History(f.Context(), f.DB, key(id))
		if a, ok := errors.AsType[*ledger.ArchivedError](err); ok {
			events, err = archive.Source{Open: open}.Events(f.Context(), a)
		}
		if err != nil {
			f.T.Fatal(id, err)
		}
		lines[i] = id
		for _, e := range events {
			lines[i] += " " + string(e.Type)
			if strings.Contains(string(e.Data), secret) {
				lines[i] += "*"
			}
		}
	}
	return strings.Join(lines, "\n")
}

// recovery is a ledger with a base backup and archived WAL.
type recovery struct {
	*fixture

	server *pgserver.Server
	wal    string // the directory of archived WAL
}

func newRecovery(t *testing.T) *recovery {
	t.Helper()
	wal := servicetest.Try(os.MkdirTemp("", "taskledger-wal-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(wal) })
	if err := os.Chmod(wal, 0o777); err != nil { // the server may run as another user
		t.Fatal(err)
	}
	server := ledgertest.Cluster(t, map[string]string{"archive_mode": "on",
		"archive_command": "cp %p " + filepath.Join(wal, "%f")})
	f := &fixture{Bundle: &servicetest.Bundle{T: t}, archive: filepath.Join(t.TempDir(), "archive")}
	return &recovery{f.on(server), server, wal}
}

// backup returns a base backup of the server.
func (r *recovery) backup() *pgserver.Backup {
	r.T.Helper()
	backup, err := r.server.Backup(r.T.Context())
	if errors.Is(err, pgserver.ErrNotInstalled) {
		r.T.Skip(err)
	}
	return servicetest.Try(backup, err)(r.T)
}

// kill kills the server once its WAL is archived.
func (r *recovery) kill() {
	r.T.Helper()
	last := r.text(`select pg_walfile_name(pg_switch_wal())`)
	r.Await("the WAL to be archived", func() bool {
		_, err := os.Stat(filepath.Join(r.wal, last))
		return err == nil
	})
	r.DB.Close()
	if err := r.server.Kill(); err != nil {
		r.T.Fatal(err)
	}
}

// to recovers a backup up to a target.
func (r *recovery) to(backup *pgserver.Backup, setting, target string) *fixture {
	r.T.Helper()
	server := servicetest.Try(backup.Start(r.T.Context(), map[string]string{
		"restore_command": "cp " + filepath.Join(r.wal, "%f") + " %p", setting: target,
		"recovery_target_action": "promote"}))(r.T)
	r.T.Cleanup(func() { _ = server.Close() })
	f := r.on(server)
	f.Await("the server to be a primary", func() bool {
		return servicetest.One[bool](f, `select not pg_is_in_recovery()`)
	})
	return f
}

// The whole history of a finished task, with and without its texts.
const (
	whole  = " enqueued* started failed* released started succeeded"
	erased = " enqueued started failed released started succeeded"
)

// A base backup and archived WAL are recovered to between the file of a run and the removal, so to before an erasure.
// The next run finishes: each event is archived once, and its texts are erased again.
//
// With -recovery another backup is recovered to before all runs. Its seal goes another way than the archive, which is
// refused, and its tasks are archived to another place.
func TestRecoveryOfArchiveAndErasure(t *testing.T) {
	t.Parallel()
	r := newRecovery(t)
	between := r.backup()
	var before *pgserver.Backup
	if *recoversEarly {
		before = r.backup()
	}
	r.finish("a1", "a2")
	r.enqueue("waits")
	r.Project()
	early := r.seal()
	lsn := r.text(`select pg_current_wal_insert_lsn()::text`)
	r.store()
	r.finish("b1", "b2")
	kept := r.seal()
	report, err := r.run(r.archive, func(files archiver.Files) archiver.Files {
		return marking{files, func() error {
			_, err := r.owner.Exec(t.Context(), `select pg_create_restore_point('stored')`)
			return err
		}}
	})
	if err != nil || report.Tasks != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	lost := []ledger.Key{key("a1"), key("b1"), key("waits")}
	r.erase(erasure.Options{Keys: lost})
	if found := leakingTasks(t, r.archive); found != "a2 b2" {
		t.Fatalf("the archive contains the texts of %s", found)
	}
	r.kill()

	f := r.to(between, "recovery_target_name", "stored")
	f.want("restored", f.histories("a1", "b1", "b2", "waits"),
		"a1"+erased+"\nb1"+whole+"\nb2"+whole+"\nwaits enqueued*") // of a1 are only files
	if report := f.erase(erasure.Options{Again: true}); report.Tasks != 3 {
		t.Errorf("%+v", report)
	}
	f.seal()
	if report, err := f.run(f.archive, nil); err != nil || report.Tasks != 3 {
		t.Errorf("%+v, %v", report, err)
	}
	f.wantArchived(f.archive, []seal.Checkpoint{early, kept}, "a1"+erased+"\na2"+whole+"\nb1"+erased+"\nb2"+whole+
		"\nwaits enqueued cancelled", "a1", "a2", "b1", "b2", "waits")
	if before != nil {
		r.isArchivedElsewhere(r.to(before, "recovery_target_lsn", lsn), early)
	}
}

// wantArchived checks that the tables contain no text, that these tasks have these events, and that seal and archive
// are those of the checkpoints.
func (f *fixture) wantArchived(place string, kept []seal.Checkpoint, want string, ids ...string) {
	f.T.Helper()
	f.want("texts", f.leaks(), "")
	f.want("events", f.histories(ids...), want)
	verified := servicetest.Try(seal.Verify(f.Context(), f.As("reader"), &seal.VerifyOptions{Checkpoints: kept}))(f.T)
	if !verified.IsValid() || len(verified.Unchecked) > 0 {
		f.T.Errorf("%+v", verified)
	}
	files := servicetest.Try(archive.Verify(f.Context(), archive.Directory(place),
		&archive.VerifyOptions{Checkpoints: kept}))(f.T)
	if files.Compared != len(kept) || files.Unproved > 0 {
		f.T.Errorf("%+v", files)
	}
	f.verifyProjection()
	if n := f.text(`select count(*)::text from taskledger.archived_key`); n != strconv.Itoa(len(ids)) {
		f.T.Errorf("%s keys are archived, want %d", n, len(ids))
	}
}

// isArchivedElsewhere archives a ledger that was recovered to before all runs.
func (r *recovery) isArchivedElsewhere(f *fixture, early seal.Checkpoint) {
	r.T.Helper()
	f.want("restored", f.leaks(), "event a1\nevent a2\nevent waits\ntag\ntag\ntag\ntask a1\ntask a2")
	f.finish("c")
	f.seal()
	report, err := f.run(f.archive, nil)
	if !errors.Is(err, seal.ErrInconsistent) || !strings.Contains(err.Error(), "use another place") ||
		report.Tasks != 0 {
		r.T.Errorf("%+v, %v", report, err)
	}
	if report := f.erase(erasure.Options{Again: true, Archives: []string{f.archive}}); report.Tasks != 3 {
		r.T.Errorf("%+v", report) // with b1, whose key is unknown
	}
	f.seal()
	place := f.archive + "-2"
	if report, err := f.run(place, nil); err != nil || report.Tasks != 4 {
		r.T.Errorf("%+v, %v", report, err)
	}
	f.wantArchived(place, []seal.Checkpoint{early}, "a1"+erased+"\na2"+whole+"\nc"+whole+
		"\nwaits enqueued cancelled", "a1", "a2", "c", "waits")
	if found := leakingTasks(r.T.(*testing.T), f.archive); found != "a2 b2" {
		r.T.Errorf("the old archive contains the texts of %s", found)
	}
	servicetest.Try(archive.Verify(f.Context(), archive.Directory(f.archive), nil))(r.T)
}
