package erasure_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/klauspost/compress/zstd"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/erasure"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/smalldisk"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

const (
	kind   = "mail.send"
	secret = "Ada-Lovelace"
)

func key(id string) ledger.Key { return ledger.Key{Kind: kind, BizID: ledger.BizID(id)} }

// fixture is a ledger whose projection follows on request.
type fixture struct {
	*servicetest.Bundle
	archive string
	owner   *pgxpool.Pool // nil: that of the shared server
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{Bundle: servicetest.NewDatabase(t), archive: filepath.Join(t.TempDir(), "archive")}
}

// enqueue enqueues tasks whose args, meta and actor contain the secret.
func (f *fixture) enqueue(ids ...string) {
	f.T.Helper()
	for _, id := range ids {
		_, err := ledger.Enqueue(f.Context(), f.DB, key(id), []byte(`{"to":"`+secret+`"}`),
			&ledger.EnqueueOptions{Actor: secret, Meta: ledger.Meta{Tags: []string{secret}}})
		if err != nil {
			f.T.Fatal(err)
		}
	}
}

// finish enqueues tasks, which fail once and succeed.
func (f *fixture) finish(ids ...string) {
	f.T.Helper()
	f.enqueue(ids...)
	for _, id := range ids {
		ledgertest.Append(f.T, f.DB, key(id), ledger.EventStarted)
		r := ledgertest.Request(key(id), 2, ledger.EventFailed)
		r.Data = []byte(`{"error":{"message":"no mailbox ` + secret + `"},"retry_at":"2026-11-30T10:00:00Z"}`)
		if _, err := ledger.Append(f.Context(), f.DB, r); err != nil {
			f.T.Fatal(err)
		}
		ledgertest.Append(f.T, f.DB, key(id), ledger.EventReleased, ledger.EventStarted, ledger.EventSucceeded)
	}
}

func (f *fixture) seal() seal.Checkpoint {
	f.T.Helper()
	return servicetest.Try(seal.Run(f.Context(), f.As("archiver"), nil))(f.T).Checkpoint
}

// store archives all finished tasks.
func (f *fixture) store() {
	f.T.Helper()
	f.Project()
	db := f.As("archiver")
	files := archiver.In(db, archive.Directory(f.archive), f.archive)
	if r, err := archiver.Run(f.Context(), db, archiver.Options{Files: files}); err != nil || r.Tasks == 0 {
		f.T.Fatalf("%+v, %v", r, err)
	}
}

func open(place string) (archive.Store, error) { return archive.Directory(place), nil }

// erase erases tasks while the projector follows.
func (f *fixture) erase(o erasure.Options) erasure.Report {
	f.T.Helper()
	ctx, stop := context.WithCancel(f.Context())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for ctx.Err() == nil {
			f.Project()
			time.Sleep(10 * time.Millisecond)
		}
	}()
	defer func() { stop(); <-followed }()
	o.Open = open
	if o.Reason == "" && !o.Again {
		o.Reason = "request 17"
	}
	return servicetest.Try(erasure.Erase(f.Context(), f.As("archiver"), o))(f.T)
}

// leaks returns the tables of the ledger whose rows contain the secret, with keys of the tasks, in lines.
func (f *fixture) leaks() string {
	f.T.Helper()
	return f.text(`
		select distinct 'event ' || e.biz_id from taskledger.event e where e::text like '%' || $1 || '%'
		union all select 'task ' || t.biz_id from taskledger.task t where t::text like '%' || $1 || '%'
		union all select 'tag' from taskledger.task_tag g where g::text like '%' || $1 || '%'
		union all select 'parked' from taskledger.subscriber_parked p where p::text like '%' || $1 || '%'
		union all select 'state' from taskledger.subscriber_state s where s::text like '%' || $1 || '%'
		order by 1`, secret)
}

// text returns the rows of a query, one a line.
func (f *fixture) text(sql string, args ...any) string {
	f.T.Helper()
	if f.owner == nil {
		f.owner = ledgertest.As(f.T, f.DB, ledgertest.Owner)
	}
	rows, err := f.owner.Query(f.Context(), sql, args...)
	if err != nil {
		f.T.Fatal(err)
	}
	return strings.Join(servicetest.Try(pgx.CollectRows(rows, pgx.RowTo[string]))(f.T), "\n")
}

// filesLeak reports whether a file below a directory contains the secret.
func filesLeak(t *testing.T, place string) bool {
	t.Helper()
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	found := false
	err = filepath.WalkDir(place, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".zst") {
			if text, err = decoder.DecodeAll(text, nil); err != nil {
				return err
			}
		}
		found = found || bytes.Contains(text, []byte(secret))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (f *fixture) verifySeal(kept seal.Checkpoint, erased int64) {
	f.T.Helper()
	r := servicetest.Try(seal.Verify(f.Context(), f.As("reader"),
		&seal.VerifyOptions{Checkpoints: []seal.Checkpoint{kept}}))(f.T)
	if !r.IsValid() || r.Erased != erased {
		f.T.Errorf("want %d erased events: %+v", erased, r)
	}
}

func (f *fixture) verifyProjection() {
	f.T.Helper()
	f.Project()
	r := servicetest.Try(projector.Verify(f.Context(), f.As("reader"), nil))(f.T)
	if len(r.Differences) > 0 {
		f.T.Errorf("%v", r.Differences)
	}
}

func (f *fixture) want(what, got, want string) {
	f.T.Helper()
	if got != want {
		f.T.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

// An erasure removes the texts of one task, whether it has finished, waits, runs or is dead, and of no other. Seal and
// projection stay valid, and the act is on record.
func TestErase(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "10")
	f.enqueue("waits", "runs", "dead")
	ledgertest.Append(t, f.DB, key("runs"), ledger.EventStarted)
	ledgertest.Append(t, f.DB, key("dead"), ledger.EventStarted)
	r := ledgertest.Request(key("dead"), 2, ledger.EventBuried)
	r.Data = []byte(`{"error":{"message":"` + secret + `"}}`)
	servicetest.Try(ledger.Append(t.Context(), f.DB, r))(t)
	f.Project()
	kept := f.seal()
	erased := []ledger.Key{key("1"), key("waits"), key("runs"), key("dead")}
	report := f.erase(erasure.Options{Keys: erased, Actor: "bob"})
	if report.Tasks != 4 || report.Events == 0 {
		t.Errorf("%+v", report)
	}
	f.want("texts", f.leaks(), "event 10\ntag\ntask 10")
	f.want("states", f.text(`select biz_id || ' ' || state from taskledger.task where kind = $1 order by biz_id`, kind),
		"1 succeeded\n10 succeeded\ndead dead\nruns cancelled\nwaits cancelled")
	f.want("record", f.text(`select actor || ': ' || (data->>'reason') || ' ' || (data->>'tasks') from taskledger.event
		where kind = 'taskledger.operation' and version = 1`),
		`bob: request 17 ["mail.send/1","mail.send/dead","mail.send/runs","mail.send/waits"]`)
	f.verifySeal(kept, 12)
	f.verifyProjection()
	for _, id := range []string{"1", "waits", "runs", "dead"} {
		task := servicetest.Try(ledger.Load(t.Context(), f.DB, key(id)))(t)
		if task.Args != nil || task.Error != "" {
			t.Errorf("%+v", task)
		}
	}
	if n := f.text(`select count(*)::text from taskledger.seal s cross join unnest(s.salts) x(salt)
		where octet_length(x.salt) = 16`); n != "6" {
		t.Errorf("%s salts are left, want those of the 6 events of task 10", n)
	}
	erased = nil
	for e, err := range ledger.Read(t.Context(), f.DB, 0, 1000) {
		if err != nil {
			t.Fatal(err)
		}
		erased = append(erased, ledger.Erased(e)...)
	}
	if len(erased) != 4 || erased[0] != key("1") {
		t.Errorf("the record names %v", erased)
	}
}

// An erased task does not run again without new args, which stay. An enqueue finds that it exists.
func TestErasedTaskDoesNotRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("1")
	f.Project()
	f.erase(erasure.Options{Keys: []ledger.Key{key("1")}})
	operator := f.As("operator")
	if _, err := operator.Exec(t.Context(), `select * from taskledger.release($1, '1')`, kind); err == nil ||
		!strings.Contains(err.Error(), "is erased") {
		t.Errorf("release in SQL: %v", err)
	}
	released := ledgertest.Request(key("1"), 2, ledger.EventReleased)
	if _, err := ledger.Append(t.Context(), operator, released); err == nil {
		t.Error("release in Go: no error")
	}
	again, err := ledger.Enqueue(t.Context(), f.DB, key("1"), []byte(`{"to":"x"}`), nil)
	if err != nil || again.New || again.State != ledger.StateCancelled {
		t.Errorf("%+v, %v", again, err)
	}
	rerun := &ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	if _, err := ledger.Enqueue(t.Context(), f.DB, key("1"), []byte(`{"to":"x"}`), rerun); err != nil {
		t.Fatal(err)
	}
	task := servicetest.Try(ledger.Load(t.Context(), f.DB, key("1")))(t)
	if string(task.Args) != `{"to":"x"}` || task.State != ledger.StateAvailable {
		t.Errorf("%+v", task)
	}
	f.verifyProjection()
}

// A task with this key in another ledger is not touched, also if both ledgers have one archive.
func TestEraseIsLimitedToItsLedger(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	other.archive = f.archive
	ledgertest.ExecAsOwner(t, other.DB, `
		update taskledger.setting set value = gen_random_uuid() where name = 'installation'`)
	f.finish("1", "2")
	other.finish("1", "2")
	f.store()
	other.store()
	f.enqueue("3")
	other.enqueue("3")
	f.Project()
	other.Project()
	f.erase(erasure.Options{Keys: []ledger.Key{key("1"), key("3")}})
	f.want("texts", f.leaks(), "")
	other.want("texts of the other ledger", other.leaks(), "event 3\ntag")
	events := servicetest.Try(archive.Source{Open: open}.Events(t.Context(), other.archived("1")))(t)
	if len(events) != 6 || !strings.Contains(string(events[0].Data), secret) {
		t.Errorf("the archived task of the other ledger: %v", events)
	}
	events = servicetest.Try(archive.Source{Open: open}.Events(t.Context(), f.archived("1")))(t)
	for _, e := range events {
		if e.Data != nil || e.Meta != nil || e.Actor != "" {
			t.Errorf("%+v", e)
		}
	}
}

// archived returns the error of a read of an archived task.
func (f *fixture) archived(id string) *ledger.ArchivedError {
	f.T.Helper()
	_, err := ledger.Load(f.Context(), f.DB, key(id))
	a, ok := errors.AsType[*ledger.ArchivedError](err)
	if !ok {
		f.T.Fatalf("load %s: %v", id, err)
	}
	return a
}

// Archived tasks are found by key and by prefix. The archive stays valid: each event is in the sealed tree.
func TestEraseArchivedTasks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("a/1", "a/2", "b/1")
	kept := f.seal()
	f.store()
	f.enqueue("a/3", "a/4", "b")
	f.Project()
	export := filepath.Join(t.TempDir(), "export")
	servicetest.Try(archive.Export(t.Context(), f.As("reader"), archive.Directory(export), nil))(t)
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(f.archive)); err != nil {
		t.Fatal(err)
	}
	prefix := key("a/")
	report := f.erase(erasure.Options{Prefix: &prefix})
	if report.Tasks != 4 || report.Archives[f.archive].Events != 12 || report.Archives[f.archive].Volumes != 1 {
		t.Errorf("%+v", report)
	}
	verified := servicetest.Try(archive.Verify(t.Context(), archive.Directory(f.archive),
		&archive.VerifyOptions{Checkpoints: []seal.Checkpoint{kept}}))(t)
	if verified.Erased != 12 || verified.Proved != 18 {
		t.Errorf("%+v", verified)
	}
	f.verifySeal(kept, 0)
	if n := f.text(`select count(*)::text from taskledger.seal s cross join unnest(s.salts) x(salt)
		where octet_length(x.salt) = 16`); n != "6" {
		t.Errorf("%s salts are left, want those of the 6 events of b/1", n)
	}
	// an old copy of the archive
	events := servicetest.Try(archive.Source{Open: open, Place: old}.Events(t.Context(), f.archived("a/1")))(t)
	if len(events) != 6 || events[0].Data != nil {
		t.Errorf("from an old copy: %v", events)
	}
	// the next export erases in an archive that the ledger did not know
	if _, err := archive.Export(t.Context(), f.As("reader"), archive.Directory(export), nil); err != nil {
		t.Fatal(err)
	}
	if n := leakingTasks(t, export); n != "b" {
		t.Errorf("the export contains the texts of %s", n)
	}
}

// leakingTasks returns the tasks of an archive whose texts contain the secret.
func leakingTasks(t *testing.T, place string) string {
	t.Helper()
	r := servicetest.Try(archive.Open(t.Context(), archive.Directory(place)))(t)
	var found []string
	err := r.Range(t.Context(), 0, func(e archive.Record) error {
		if e.Version == 1 && e.Data != nil && strings.Contains(*e.Data, secret) {
			found = append(found, string(e.BizID))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

// A call that was killed at any step is run again, and finishes.
func TestKilledErasure(t *testing.T) {
	t.Parallel()
	for _, point := range []string{fault.EraseCancelled, fault.EraseCommitted, fault.EraseListed, fault.EraseSegment,
		fault.EraseRewritten, fault.EraseReplaced} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.finish("archived")
			kept := f.seal()
			f.store()
			f.enqueue("waits")
			if point != fault.EraseCancelled { // the projector has read the end, so the first call erases
				ledgertest.Append(t, f.DB, key("waits"), ledger.EventCancelled)
				f.Project()
			}
			f.SpawnAs("archiver", "erase", point).AwaitKilled(t)
			f.erase(erasure.Options{Keys: keys})
			f.want("texts", f.leaks(), "")
			if filesLeak(t, f.archive) {
				t.Error("a file contains the text")
			}
			f.verifySeal(kept, 0)
			verified := servicetest.Try(archive.Verify(t.Context(), archive.Directory(f.archive), nil))(t)
			if verified.Erased != 6 || verified.Proved != 6 {
				t.Errorf("%+v", verified)
			}
			f.verifyProjection()
		})
	}
}

// An event is in several volumes, if it was exported and archived to one place. While only some of them are rewritten,
// the event reads as erased, and an erasure by prefix finds it and finishes.
func TestKilledErasureOfOverlappingVolumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("archived")
	f.enqueue("waits")
	ledgertest.Append(t, f.DB, key("waits"), ledger.EventCancelled)
	f.seal()
	f.Project()
	place := archive.Directory(f.archive)
	servicetest.Try(archive.Export(t.Context(), f.As("reader"), place, nil))(t)
	f.store()
	f.SpawnAs("archiver", "erase", fault.EraseReplaced).AwaitKilled(t)
	if !filesLeak(t, f.archive) {
		t.Fatal("all volumes were rewritten before the kill")
	}
	reader := servicetest.Try(archive.Open(t.Context(), place))(t)
	for _, k := range keys {
		for _, record := range servicetest.Try(reader.History(t.Context(), k))(t) {
			if record.Data != nil || record.Meta != nil || record.Actor != nil ||
				record.Leaf != nil && len(record.Salt) != 32 {
				t.Errorf("%+v", record)
			}
		}
	}
	f.erase(erasure.Options{Prefix: &ledger.Key{Kind: kind, BizID: "arch"}})
	if filesLeak(t, f.archive) {
		t.Error("a file contains the text")
	}
	servicetest.Try(archive.Verify(t.Context(), place, nil))(t)
}

// While the archive's disk is full, an erasure fails, wherever the space ends: the archive stays valid, and reads leave
// the texts out. With space, the next run of the archive finishes it, or another call.
func TestErasureOnAFullDisk(t *testing.T) {
	t.Parallel()
	const disk, page = 1 << 20, 4096
	f := newFixture(t)
	f.archive = smalldisk.Mount(t, disk)
	f.finish("archived", "other")
	f.seal()
	f.store()
	place := archive.Directory(f.archive)
	filler := servicetest.Try(os.Create(filepath.Join(f.archive, "filler")))(t)
	n, err := filler.Write(make([]byte, 2*disk))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	o := erasure.Options{Keys: keys[:1], Reason: "request 17", Open: open}
	_, err = erasure.Erase(t.Context(), f.As("archiver"), o)
	files := archiver.In(f.As("archiver"), place, f.archive)
	failed := make(map[int]bool) // by the number of files
	for ; err != nil; err = files.CatchUp(t.Context()) {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		servicetest.Try(archive.Verify(t.Context(), place, nil))(t)
		events := servicetest.Try(archive.Source{Open: open}.Events(t.Context(), f.archived("archived")))(t)
		if len(events) != 6 || strings.Contains(string(events[0].Data), secret) {
			t.Errorf("%v", events)
		}
		failed[len(servicetest.Try(place.List(t.Context(), ""))(t))] = true
		n -= page
		if err := filler.Truncate(int64(n)); err != nil {
			t.Fatal(err)
		}
	}
	f.erase(o)
	if len(failed) < 3 {
		t.Errorf("it has failed with %v files", failed)
	}
	if found := leakingTasks(t, f.archive); found != "other" {
		t.Errorf("the archive contains the texts of %s", found)
	}
	servicetest.Try(archive.Verify(t.Context(), place, nil))(t)
}

var keys = []ledger.Key{key("archived"), key("waits")}

func TestMain(m *testing.M) {
	servicetest.Main(m, func(string) servicetest.Program {
		return func(ctx context.Context, db *pgxpool.Pool) error {
			_, err := erasure.Erase(ctx, db, erasure.Options{Keys: keys, Reason: "request 17", Open: open})
			return err
		}
	})
}

// A ledger that was restored from before an erasure erases again what its archive lists, and an import does.
func TestErasureAfterARestore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("archived")
	f.store()
	f.finish("1")
	f.enqueue("waits")
	f.Project()
	f.erase(erasure.Options{Keys: []ledger.Key{key("archived"), key("1"), key("waits")}})
	f.restoreTexts()
	if f.leaks() == "" {
		t.Fatal("nothing is restored")
	}
	report := f.erase(erasure.Options{Again: true})
	f.want("texts", f.leaks(), "")
	if report.Tasks != 3 {
		t.Errorf("%+v", report)
	}
	if report = f.erase(erasure.Options{Again: true}); report.Tasks != 0 {
		t.Errorf("a second time: %+v", report)
	}
}

// Only the function erases: no role may change events, and neither may the owner outside of an erasure.
func TestOnlyAnErasureChangesEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	f.Project()
	for _, role := range []string{ledgertest.Owner, "archiver", "operator", "relay", "worker", "producer"} {
		_, err := ledgertest.As(t, f.DB, role).Exec(t.Context(),
			`update taskledger.event set data = null where biz_id = '1'`)
		if err == nil {
			t.Errorf("%s has changed events", role)
		}
	}
	for _, role := range []string{"operator", "relay", "worker", "producer", "reader"} {
		_, err := ledgertest.As(t, f.DB, role).Exec(t.Context(), `
			select taskledger_internal.erase_tasks(null, '{mail.send}', '{1}', false, '', null, 'x')`)
		if err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s has erased: %v", role, err)
		}
	}
	owner := ledgertest.As(t, f.DB, ledgertest.Owner)
	for _, change := range []string{
		`update taskledger.event set data = null, meta = null, actor = null where biz_id = '2'`, // another task
		`update taskledger.event set data = '{}' where biz_id = '1'`,                            // another text
		`update taskledger.event set version = 9, data = null, meta = null, actor = null where biz_id = '1'`,
	} {
		tx := servicetest.Try(owner.Begin(t.Context()))(t)
		_, err := tx.Exec(t.Context(), `
			select taskledger_internal.erase_tasks(null, '{mail.send}', '{1}', false, '', null, 'x')`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), change); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", change, err)
		}
		_ = tx.Rollback(t.Context())
	}
	f.want("texts", f.leaks(), "event 1\nevent 2\ntag\ntag\ntask 1\ntask 2")
}

// Unknown tasks, a missing reason and an archive that is not there are refused before anything is erased.
func TestErasureIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("archived")
	f.store()
	f.finish("1")
	f.Project()
	db := f.As("archiver")
	one := []ledger.Key{key("1")}
	var invalid *ledger.InvalidError
	if _, err := erasure.Erase(t.Context(), db, erasure.Options{Keys: one, Open: open}); !errors.As(err, &invalid) {
		t.Errorf("without a reason: %v", err)
	}
	_, err := erasure.Erase(t.Context(), db, erasure.Options{
		Keys: append([]ledger.Key{key("unknown")}, one...), Open: open, Reason: "x"})
	if !errors.Is(err, ledger.ErrUnknownTask) {
		t.Errorf("an unknown task: %v", err)
	}
	moved := f.archive + "-moved"
	if err := os.Rename(f.archive, moved); err != nil {
		t.Fatal(err)
	}
	var missing *erasure.UnreadableError
	_, err = erasure.Erase(t.Context(), db, erasure.Options{Keys: one, Open: open, Reason: "x"})
	if !errors.As(err, &missing) || missing.Place != f.archive {
		t.Errorf("an archive that is away: %v", err)
	}
	f.want("texts", f.leaks(), "event 1\ntag\ntask 1")
	f.erase(erasure.Options{Keys: []ledger.Key{key("1"), key("archived")}, Gone: []string{f.archive},
		Archives: []string{moved}})
	f.want("texts afterwards", f.leaks(), "")
	if filesLeak(t, moved) {
		t.Error("a file contains the text")
	}
}

// An erasure that cancels the run behind a dead task waits for no scheduler that begins this run, and the other way
// round, wherever the erasure is: neither is a deadlock.
func TestErasureWhileTheNextRunBegins(t *testing.T) {
	t.Parallel()
	for _, held := range []ledger.Kind{"a.first", "mail.send", "zz.last"} { // the erasure waits before or after it
		f := newFixture(t)
		other := ledger.Key{Kind: held, BizID: "zz"}
		ledgertest.Enqueue(t, f.DB, other, `{}`)
		f.enqueue("dead")
		ledgertest.Append(t, f.DB, key("dead"), ledger.EventStarted)
		follow := &ledger.EnqueueOptions{Actor: secret, IfExists: ledger.IfExistsFollow}
		servicetest.Try(ledger.Enqueue(t.Context(), f.DB, key("dead"), []byte(`{"to":"`+secret+` again"}`), follow))(t)
		ledgertest.Append(t, f.DB, key("dead"), ledger.EventBuried)
		tx := servicetest.Try(f.DB.Begin(t.Context()))(t)
		ledgertest.Append(t, tx, other, ledger.EventStarted)
		owner := ledgertest.As(t, f.DB, ledgertest.Owner)
		ended := make(chan error, 2)
		waiting := func() string {
			return f.text(`select count(*)::text from pg_stat_activity a
				where a.datname = current_database() and a.wait_event_type = 'Lock'`)
		}
		go func() {
			_, err := owner.Exec(t.Context(), `select taskledger_internal.erase_tasks(null, array['mail.send', $1],
				'{dead,zz}', false, '', '', 'request 17')`, string(held))
			ended <- err
		}()
		f.Await("the erasure", func() bool { return waiting() == "1" })
		go func() {
			_, err := owner.Exec(t.Context(), `select taskledger_internal.begin_next('mail.send', 'dead')`)
			ended <- err
		}()
		f.Await("the scheduler", func() bool { return waiting() == "2" || len(ended) == 1 })
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", held, err)
			}
		}
		f.erase(erasure.Options{Keys: []ledger.Key{key("dead"), other}})
		f.want("texts", f.leaks(), "")
	}
}

// The end of a duplicate of an archived task continues the archived versions, also after an erasure of its reason.
func TestErasedDuplicateOfAnArchivedTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	f.store()
	f.enqueue("1")
	f.text(`select n::text from taskledger_internal.discard_archived(array[$1], array['1'], 'dispatcher') n`, kind)
	f.Project()
	f.erase(erasure.Options{Keys: []ledger.Key{key("1")}})
	f.want("texts", f.leaks(), "")
	events := servicetest.Try(ledger.History(t.Context(), f.DB, key("1")))(t)
	task, err := ledger.Fold(events)
	if err != nil || task.State != ledger.StateDiscarded {
		t.Errorf("%+v, %v", task, err)
	}
	f.verifyProjection()
	ledgertest.Check(t, f.DB)
}

// restoreTexts makes the ledger one that was restored from before an erasure of unsealed tasks.
func (f *fixture) restoreTexts() {
	f.T.Helper()
	ledgertest.ExecAsOwner(f.T, f.DB, `set session_replication_role = replica;
		delete from taskledger.erasure;
		update taskledger.event set data = '{"to":"`+secret+`"}' where kind = 'mail.send' and version = 1;
		delete from taskledger.event where kind = 'taskledger.operation';
		set session_replication_role = origin`)
}

// A ledger that was restored from before an erasure archives the text again, to an archive that has completed the
// erasure. Erased again, no file contains it.
func TestErasureOfWhatARestoredLedgerArchives(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("0")
	f.store()
	f.finish("1")
	f.Project()
	f.erase(erasure.Options{Keys: []ledger.Key{key("1")}})
	f.restoreTexts()
	f.store()
	if found := leakingTasks(t, f.archive); found != "0 1" {
		t.Fatalf("the archive contains the texts of %s", found)
	}
	f.erase(erasure.Options{Again: true})
	if found := leakingTasks(t, f.archive); found != "0" {
		t.Errorf("the archive contains the texts of %s", found)
	}
}

// An erasure was killed before it had rewritten the archive, and the ledger is restored from before the task. Erased
// again, no file contains the text, although the ledger's positions end before those of the task.
func TestErasureAgainOfAnUnknownTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("archived")
	f.store()
	f.enqueue("waits")
	ledgertest.Append(t, f.DB, key("waits"), ledger.EventCancelled)
	f.Project()
	f.SpawnAs("archiver", "erase", fault.EraseListed).AwaitKilled(t)
	f.restoreTexts()
	ledgertest.ExecAsOwner(t, f.DB, `set session_replication_role = replica;
		delete from taskledger.event;
		delete from taskledger.archived_key;
		delete from taskledger.archive_batch;
		select setval('taskledger.archived_until', 1);
		set session_replication_role = origin`)
	f.erase(erasure.Options{Again: true})
	if filesLeak(t, f.archive) {
		t.Error("a file contains the text")
	}
}
