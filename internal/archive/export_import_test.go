package archive_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// filled returns a ledger with tasks in many states, and its pools for producers and for readers.
func filled(t *testing.T) (app, reader *pgxpool.Pool) {
	t.Helper()
	app = ledgertest.Pool(t)
	for i := range 5 {
		k := ledgertest.Key(t, fmt.Sprintf("coupon.send/done-%d", i))
		ledgertest.Enqueue(t, app, k, "{\n\t\"text\": \"a\\\\b\\t\"}")
		ledgertest.Append(t, app, k, ledger.EventStarted, ledger.EventSucceeded)
	}
	enqueue := func(id string, o ledger.EnqueueOptions) {
		t.Helper()
		k, args := ledgertest.Key(t, "coupon.send/"+id), json.RawMessage(`{"run_at":1}`)
		_, err := ledger.Enqueue(t.Context(), app, k, args, &o)
		if err != nil {
			t.Fatal(err)
		}
	}
	enqueue("waiting", ledger.EnqueueOptions{Priority: ledger.PriorityHigh, Partition: "tenant"})
	enqueue("later", ledger.EnqueueOptions{RunIn: time.Hour})
	soon := time.Now().Add(time.Hour)
	enqueue("deadlines", ledger.EnqueueOptions{StartBy: soon, FinishBy: soon.Add(time.Hour)})
	enqueue("in-line", ledger.EnqueueOptions{OrderKey: "line/1"})
	enqueue("after", ledger.EnqueueOptions{After: []ledger.Key{ledgertest.Key(t, "coupon.send/waiting")}})
	enqueue("retrying", ledger.EnqueueOptions{FinishBy: time.Now().Add(3 * time.Hour)})
	retrying := ledgertest.Request(ledgertest.Key(t, "coupon.send/retrying"), 2, ledger.EventFailed)
	retrying.In, retrying.Data = time.Minute, json.RawMessage(`{"error":{"message":"no"}}`)
	ledgertest.Append(t, app, retrying.Key, ledger.EventStarted)
	if _, err := ledger.Append(t.Context(), app, retrying); err != nil {
		t.Fatal(err)
	}
	return app, ledgertest.As(t, app, "reader")
}

// rows returns all rows of a query as text.
func rows(t *testing.T, db ledger.DB, sql string) (all []string) {
	t.Helper()
	r, err := db.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for r.Next() {
		var text string
		if err := r.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Everything of the events but the transaction ID, and the timers.
const (
	eventsText = `select (to_jsonb(e) - 'xid' || jsonb_build_object('data', e.data::text, 'meta', e.meta::text))::text
		from taskledger.event e order by e.position`
	timersText = `select (t.kind, t.biz_id, t.version, t.reason, t.due_at)::text
		from taskledger.timers t order by t.kind, t.biz_id, t.version, t.reason`
)

func export(t *testing.T, db *pgxpool.Pool, s archive.Store, o *archive.ExportOptions) archive.Manifest {
	t.Helper()
	m, err := archive.Export(t.Context(), db, s, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An export into two volumes, sealed in between, is imported into an empty ledger, with events, timers and keys.
func TestExportAndImport(t *testing.T) {
	app, reader := filled(t)
	dir, archiver := archive.Directory(t.TempDir()), ledgertest.As(t, app, "archiver")
	if m := export(t, reader, dir, &archive.ExportOptions{To: 9}); m.Checkpoint != nil || m.To != 9 || m.Events != 9 {
		t.Errorf("%+v", m)
	}
	sealed, err := seal.Run(t.Context(), archiver, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := export(t, reader, dir, nil)
	if m.From != 10 || m.Checkpoint == nil || *m.Checkpoint != sealed.Checkpoint || len(m.Logins) != 1 {
		t.Errorf("%+v", m)
	}
	if _, err := archive.Export(t.Context(), reader, dir, nil); !errors.Is(err, archive.ErrNothing) {
		t.Errorf("a third export: %v", err)
	}
	newer := sealed.Checkpoint // published after the export: its tiles are in no file of the archive
	newer.Size += 300
	kept := []seal.Checkpoint{sealed.Checkpoint, newer}
	report, err := archive.Verify(t.Context(), dir, &archive.VerifyOptions{Checkpoints: kept})
	if err != nil || report.Proved != m.Events || report.Unproved != 9 || report.Compared != 1 || report.Newer != 1 {
		t.Errorf("%+v, %v", report, err)
	}

	target := ledgertest.As(t, ledgertest.Pool(t), ledgertest.Owner)
	done, err := archive.Import(t.Context(), target, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(rows(t, reader, eventsText), rows(t, target, eventsText)); diff != "" {
		t.Error(diff)
	}
	want := rows(t, reader, timersText)
	if diff := difference.Of(want, rows(t, target, timersText)); diff != "" || int(done.Timers) != len(want) {
		t.Errorf("%d timers\n%s", done.Timers, diff)
	}
	ledgertest.Check(t, target)
	again, err := ledger.Enqueue(t.Context(), target, ledgertest.Key(t, "coupon.send/done-1"),
		json.RawMessage("{\n\t\"text\": \"a\\\\b\\t\"}"), nil)
	if err != nil || again.New {
		t.Errorf("a key of the files is enqueued: %+v, %v", again, err)
	}
	late := ledgertest.Request(ledgertest.Key(t, "coupon.send/done-1"), 2, ledger.EventFailed)
	if _, err := ledger.Append(t.Context(), target, late); !ledger.IsConflict(err) {
		t.Errorf("a zombie's append: %v", err)
	}
	k := ledgertest.Key(t, "coupon.send/new")
	ledgertest.Enqueue(t, target, k, `{}`)
	if e, err := ledger.History(t.Context(), target, k); err != nil || e[0].Position <= done.Last {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := archive.Import(t.Context(), target, dir, nil); !errors.Is(err, archive.ErrNotEmpty) {
		t.Errorf("an import into a ledger with events: %v", err)
	}
}

// A reader that follows the empty ledger gets the imported events.
func TestImportReachesReaders(t *testing.T) {
	_, reader := filled(t)
	dir := archive.Directory(t.TempDir())
	m := export(t, reader, dir, nil)
	pool := ledgertest.Pool(t)
	archiver, owner := ledgertest.As(t, pool, "archiver"), ledgertest.As(t, pool, ledgertest.Owner)
	s := seal.NewSealer(archiver)
	if n, err := s.Seal(t.Context()); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	if _, err := archive.Import(t.Context(), owner, dir, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Seal(t.Context()); err != nil || n != m.Events {
		t.Errorf("%d of %d events are sealed, %v", n, m.Events, err)
	}
	if r, err := seal.Verify(t.Context(), ledgertest.As(t, pool, "reader"), nil); err != nil || !r.IsValid() {
		t.Errorf("%+v, %v", r, err)
	}
}

// An import that is killed has changed nothing, and the same call imports everything.
func TestImportKilled(t *testing.T) {
	_, reader := filled(t)
	dir := archive.Directory(t.TempDir())
	export(t, reader, dir, nil)
	target := ledgertest.As(t, ledgertest.Pool(t), ledgertest.Owner)
	for _, point := range []string{fault.ImportCopied, fault.ImportEnd} {
		into := ledgertest.URLAs(t, target.Config().ConnString(), ledgertest.Owner)
		runChild(t, point, importedInto+"="+into, writtenArchive+"="+string(dir))
		if n := len(rows(t, target, eventsText)); n > 0 {
			t.Errorf("%s: %d events were left", point, n)
		}
	}
	if _, err := archive.Import(t.Context(), target, dir, nil); err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of(rows(t, reader, eventsText), rows(t, target, eventsText)); diff != "" {
		t.Error(diff)
	}
}

// runChild runs this test binary until it is killed at a point.
func runChild(t *testing.T, point string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), fault.Variable+"="+point), env...)
	if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
		t.Fatalf("%s: the process was not killed: %v, %s", point, err, out)
	}
}

// An export that is killed continues, although events were added meanwhile: its range was chosen before.
func TestExportKilled(t *testing.T) {
	app, reader := filled(t)
	if _, err := seal.Run(t.Context(), ledgertest.As(t, app, "archiver"), nil); err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{fault.ArchivePlan, fault.ArchiveSegment, fault.ArchiveRun, fault.ArchiveSummary,
		fault.ArchiveTiles, fault.ArchiveIndex, fault.ArchiveManifest} {
		dir := archive.Directory(t.TempDir())
		from := ledgertest.URLAs(t, app.Config().ConnString(), "reader")
		runChild(t, point, exportedFrom+"="+from, writtenArchive+"="+string(dir))
		ledgertest.Enqueue(t, app, ledgertest.Key(t, "coupon.send/"+point), `{}`)
		want, err := archive.Unfinished(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		m := export(t, reader, dir, nil)
		if len(want) > 0 && m.Name != want[0].Name {
			t.Errorf("%s: volume %s was begun, and %s written", point, want[0].Name, m.Name)
		}
		if m.To < ledger.Position(len(rows(t, reader, eventsText))) {
			export(t, reader, dir, nil)
		}
		r, err := archive.Verify(t.Context(), dir, nil)
		if err != nil || int(r.Events) != len(rows(t, reader, eventsText)) {
			t.Errorf("%s: %+v, %v", point, r, err)
		}
	}
}

// An export waits for transactions that can still commit events of its range, and does not lose them.
func TestExportWaitsForOpenTransactions(t *testing.T) {
	app, reader := filled(t)
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Enqueue(t, tx, ledgertest.Key(t, "coupon.send/late"), `{}`)
	ledgertest.Enqueue(t, app, ledgertest.Key(t, "coupon.send/early"), `{}`)
	dir := archive.Directory(t.TempDir())
	var open *archive.OpenError
	_, err = archive.Export(t.Context(), reader, dir, &archive.ExportOptions{Wait: time.Millisecond})
	if !errors.As(err, &open) {
		t.Errorf("an export beside an open transaction: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := export(t, reader, dir, nil); int(m.Events) != len(rows(t, reader, eventsText)) {
		t.Errorf("%d events", m.Events)
	}
}

// A kind alone can be exported, and imported: its tasks are whole.
func TestExportOfAKind(t *testing.T) {
	app, reader := filled(t)
	ledgertest.Enqueue(t, app, ledgertest.Key(t, "mail.send/1"), `{}`)
	dir := archive.Directory(t.TempDir())
	m := export(t, reader, dir, &archive.ExportOptions{Kinds: []ledger.Kind{"mail.send"}})
	if m.Events != 1 || !strings.HasPrefix(m.Name, "events-") {
		t.Errorf("%+v", m)
	}
	target := ledgertest.As(t, ledgertest.Pool(t), ledgertest.Owner)
	if done, err := archive.Import(t.Context(), target, dir, nil); err != nil || done.Events != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

// Files that lack events of a task are refused, and nothing is imported.
func TestImportOfPartOfATask(t *testing.T) {
	_, reader := filled(t)
	for name, o := range map[string]*archive.ExportOptions{"end": {To: 2}, "beginning": {From: 2}} {
		dir := archive.Directory(filepath.Join(t.TempDir(), name))
		export(t, reader, dir, o)
		target := ledgertest.As(t, ledgertest.Pool(t), ledgertest.Owner)
		_, err := archive.Import(t.Context(), target, dir, nil)
		if isPart := name == "beginning"; errors.Is(err, archive.ErrNotEmpty) != isPart || !isPart && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file with another event than the sealed one is found, although its hashes and its manifest were made anew.
func TestForgedEvent(t *testing.T) {
	app, reader := filled(t)
	if _, err := seal.Run(t.Context(), ledgertest.As(t, app, "archiver"), nil); err != nil {
		t.Fatal(err)
	}
	dir := archive.Directory(t.TempDir())
	m := export(t, reader, dir, nil)
	r, err := archive.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	forge := func(edit func(*archive.Record) bool) error {
		forged := archive.Directory(t.TempDir())
		if err := os.CopyFS(string(forged), os.DirFS(string(dir))); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(string(forged), "volumes")); err != nil {
			t.Fatal(err)
		}
		w, err := archive.Create(t.Context(), forged, m.Plan)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Range(t.Context(), 0, func(r archive.Record) error {
			if !edit(&r) {
				return nil
			}
			return w.Add(t.Context(), &r)
		})
		if err != nil {
			t.Fatal(err)
		}
		o := &archive.CloseOptions{Checkpoint: m.Checkpoint, Logins: m.Logins}
		if _, err := w.Close(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		_, err = archive.Verify(t.Context(), forged, nil)
		return err
	}
	if err := forge(func(*archive.Record) bool { return true }); err != nil {
		t.Errorf("without a change: %v", err)
	}
	mallory := "mallory"
	for name, edit := range map[string]func(*archive.Record){
		"actor":   func(r *archive.Record) { r.Actor = &mallory },
		"version": func(r *archive.Record) { r.Version++ },
		"leaf":    func(r *archive.Record) { *r.Leaf++ },
		"salt":    func(r *archive.Record) { r.Salt[0]++ },
		"time":    func(r *archive.Record) { r.RecordedAt = r.RecordedAt.Add(time.Microsecond) },
	} {
		err := forge(func(r *archive.Record) bool {
			if r.Position == 5 {
				edit(r)
			}
			return true
		})
		var file *archive.FileError
		if !errors.As(err, &file) || !strings.Contains(err.Error(), "position 5 is not leaf") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A tile of another tree.
	tile := filepath.Join(string(dir), "tile", "0", "000.p", fmt.Sprint(m.Checkpoint.Size))
	data, err := os.ReadFile(tile)
	if err != nil {
		t.Fatal(err)
	}
	data[0]++
	if err := os.WriteFile(tile, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Verify(t.Context(), dir, nil); !errors.Is(err, seal.ErrInconsistent) {
		t.Errorf("a changed tile: %v", err)
	}
	if err := os.Remove(tile); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Verify(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "lacks a tile") {
		t.Errorf("a missing tile: %v", err)
	}
}

// An archive accepts volumes of one ledger.
func TestExportOfAnotherLedger(t *testing.T) {
	_, reader := filled(t)
	dir := archive.Directory(t.TempDir())
	export(t, reader, dir, nil)
	_, other := filled(t)
	owner := ledgertest.As(t, other, ledgertest.Owner)
	_, err := owner.Exec(t.Context(), "update taskledger.setting set value = 'other' where name = 'installation'")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []*archive.ExportOptions{nil, {From: 3}} {
		var file *archive.FileError
		if _, err := archive.Export(t.Context(), other, dir, o); !errors.As(err, &file) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// exportOrImport is the work of a child process.
func exportOrImport(ctx context.Context, dir archive.Directory, from, into string) error {
	pool, err := pgxpool.New(ctx, from+into)
	if err != nil {
		return err
	}
	defer pool.Close()
	if into != "" {
		_, err = archive.Import(ctx, pool, dir, nil)
	} else {
		_, err = archive.Export(ctx, pool, dir, nil)
	}
	return err
}
