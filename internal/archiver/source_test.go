package archiver_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

func openDirectory(place string) (archive.Store, error) { return archive.Directory(place), nil }

// archiveTo archives all finished tasks to a directory.
func (f *fixture) archiveTo(place string) {
	f.T.Helper()
	f.Project()
	db := f.As("archiver")
	files := archiver.In(db, archive.Directory(place), place)
	if r, err := archiver.Run(f.Context(), db, archiver.Options{Files: files}); err != nil || r.Tasks == 0 {
		f.T.Fatalf("%+v, %v", r, err)
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

// An archived task is read from its files as it was in the tables.
func TestArchivedTaskIsRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	history, err := ledger.History(t.Context(), f.DB, key("2"))
	if err != nil {
		t.Fatal(err)
	}
	task, err := ledger.Load(t.Context(), f.DB, key("2"))
	if err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(t.TempDir(), "archive")
	f.archiveTo(place)
	a := f.archived("2")
	events, err := archive.Source{Open: openDirectory}.Events(t.Context(), a)
	if diff := difference.Of(history, events); diff != "" || err != nil {
		t.Error(err, diff)
	}
	found, err := archive.Task(a, events)
	if found.ArchivedAt.IsZero() {
		t.Error("no time of the archiving")
	}
	task.ArchivedAt = found.ArchivedAt
	if diff := difference.Of(task, found); diff != "" || err != nil {
		t.Error(err, diff)
	}

	moved := place + "-moved"
	if err := os.Rename(place, moved); err != nil {
		t.Fatal(err)
	}
	_, err = archive.Source{Open: openDirectory}.Events(t.Context(), a)
	unreadable, ok := errors.AsType[*archive.UnreadableError](err)
	if !ok || errors.Is(err, ledger.ErrUnknownTask) || !strings.Contains(unreadable.Error(), place) {
		t.Errorf("the archive has moved: %v", err)
	}
	events, err = archive.Source{Open: openDirectory, Place: moved}.Events(t.Context(), a)
	if len(events) != len(history) || err != nil {
		t.Errorf("at its new place: %v, %v", events, err)
	}
}

// A task whose key was archived several times has its whole history, over all volumes.
func TestArchivedTaskIsReadOverVolumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	place := t.TempDir()
	f.finish("1")
	f.archiveTo(place)
	rerun := &ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	if _, err := ledger.Enqueue(t.Context(), f.DB, key("1"), nil, rerun); err != nil {
		t.Fatal(err)
	}
	ledgertest.Append(t, f.DB, key("1"), ledger.EventStarted, ledger.EventCancelled)
	f.archiveTo(place)
	a := f.archived("1")
	events, err := archive.Source{Open: openDirectory}.Events(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, e := range events {
		text += e.String() + "\n"
	}
	f.want("events", text, `coupon.send/1 version 1 enqueued, attempt 0
coupon.send/1 version 2 started, attempt 1
coupon.send/1 version 3 succeeded, attempt 1
coupon.send/1 version 1 enqueued, attempt 0
coupon.send/1 version 4 discarded, attempt 0: archived
coupon.send/1 version 5 enqueued, attempt 0
coupon.send/1 version 6 started, attempt 1
coupon.send/1 version 7 cancelled, attempt 1
`)
	task, err := archive.Task(a, events)
	if err != nil || task.State != ledger.StateCancelled || task.Version != 7 || task.Run != 2 {
		t.Errorf("%+v, %v", task, err)
	}
}

// The state of a task that was repeated afterwards is that of its archiving, and not of the duplicate.
func TestArchivedDuplicateIsNotTheTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	place := t.TempDir()
	f.finish("1")
	f.archiveTo(place)
	ledgertest.Enqueue(t, f.DB, key("1"), `{}`)
	claims(t, ledgertest.As(t, f.DB, "worker"), "1")
	f.archiveTo(place)
	a := f.archived("1")
	events, err := archive.Source{Open: openDirectory}.Events(t.Context(), a)
	if err != nil || len(events) != 5 {
		t.Fatalf("%v, %v", events, err)
	}
	task, err := archive.Task(a, events)
	if err != nil || task.State != ledger.StateSucceeded || task.Version != 3 {
		t.Errorf("%+v, %v", task, err)
	}
}

// A task that was archived to no file is read from an export that contains it.
func TestArchivedTaskIsReadFromAnExport(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	place := t.TempDir()
	if _, err := archive.Export(t.Context(), f.As("reader"), archive.Directory(place), nil); err != nil {
		t.Fatal(err)
	}
	f.archive()
	a := f.archived("1")
	_, err := archive.Source{Open: openDirectory}.Events(t.Context(), a)
	if found, ok := errors.AsType[*ledger.ArchivedError](err); !ok || found != a {
		t.Errorf("without a place: %v", err)
	}
	events, err := archive.Source{Open: openDirectory, Place: place}.Events(t.Context(), a)
	if len(events) != 3 || err != nil {
		t.Errorf("%v, %v", events, err)
	}
	other := *a
	other.Key.BizID, other.File = "with this hash", archive.VolumeAt(place, volumes(t, place)[0])
	_, err = archive.Source{Open: openDirectory}.Events(t.Context(), &other)
	if !errors.Is(err, ledger.ErrUnknownTask) ||
		errors.As(err, new(*ledger.ArchivedError)) {
		t.Errorf("a key that is not in the files: %v", err)
	}
}

func volumes(t *testing.T, place string) []string {
	t.Helper()
	names, err := archive.ListVolumes(t.Context(), archive.Directory(place))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names
}

// Two ledgers archive to one place, and both have tasks with one key. A reader gets the events of its own ledger, also
// where it reads several volumes.
func TestArchivedTaskBesideAnotherLedger(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	place := t.TempDir()
	ledgertest.ExecAsOwner(t, other.DB, `
		update taskledger.setting set value = gen_random_uuid()::text where name = 'installation'`)
	ledgertest.Enqueue(t, other.DB, key("0"), `{}`) // the positions differ
	other.finish("1")
	other.archiveTo(place)
	f.finish("1")
	f.archiveTo(place)
	rerun := &ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	if _, err := ledger.Enqueue(t.Context(), f.DB, key("1"), nil, rerun); err != nil {
		t.Fatal(err)
	}
	ledgertest.Append(t, f.DB, key("1"), ledger.EventStarted, ledger.EventCancelled)
	f.archiveTo(place)
	events, err := archive.Source{Open: openDirectory}.Events(t.Context(), f.archived("1"))
	if len(events) != 8 || err != nil {
		t.Errorf("%d events, %v: %v", len(events), err, events)
	}
}

// The place in which a task is looked for first contains an older export, or cannot be read: the task is read from
// where it was archived.
func TestArchivedTaskIsReadBehindABadPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	place, first := t.TempDir(), t.TempDir()
	f.finish("1")
	f.archiveTo(place)
	a := f.archived("1")
	volume := volumes(t, place)[0]
	folder := filepath.Join(first, "volumes", volume)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(place, "volumes", volume, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"truncated": string(manifest[:100]), "without its other files": string(manifest),
	} {
		if err := os.WriteFile(filepath.Join(folder, "manifest.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		source := archive.Source{Open: openDirectory, Place: first}
		if events, err := source.Events(t.Context(), a); len(events) != 3 || err != nil {
			t.Errorf("%s: %v, %v", name, events, err)
		}
		source.Place = place
		unread := *a
		unread.File = archive.VolumeAt(first, volume)
		if events, err := source.Events(t.Context(), &unread); len(events) != 3 || err != nil {
			t.Errorf("%s, second: %v, %v", name, events, err)
		}
		if _, err := (archive.Source{Open: openDirectory}).Events(t.Context(), &unread); !errors.As(err,
			new(*archive.UnreadableError)) {
			t.Errorf("%s, alone: %v", name, err)
		}
	}
}

// An export from before the task's end is not taken for the archived task.
func TestArchivedTaskIsNotReadFromAnOlderExport(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	place := t.TempDir()
	ledgertest.Enqueue(t, f.DB, key("1"), `{}`)
	ledgertest.Append(t, f.DB, key("1"), ledger.EventStarted)
	if _, err := archive.Export(t.Context(), f.As("reader"), archive.Directory(place), nil); err != nil {
		t.Fatal(err)
	}
	ledgertest.Append(t, f.DB, key("1"), ledger.EventSucceeded)
	f.archive()
	a := f.archived("1")
	events, err := archive.Source{Open: openDirectory, Place: place}.Events(t.Context(), a)
	if found, ok := errors.AsType[*ledger.ArchivedError](err); !ok || found != a {
		t.Errorf("%v, %v", events, err)
	}
}
