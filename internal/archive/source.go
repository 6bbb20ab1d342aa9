package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// VolumeAt returns the name under which the ledger records a volume of the archive at a place.
func VolumeAt(place, volume string) string {
	return strings.TrimSuffix(place, "/") + "/" + volumesPrefix + volume
}

// Source reads archived tasks.
type Source struct {
	// Place is the archive in which a task is looked for first. Default: where the ledger has recorded that it is.
	Place string
	// Open opens an archive. Required.
	Open func(place string) (Store, error)
}

// UnreadableError is an archived task, or a file of archived events, that cannot be read: its archive is away or
// damaged. It is not an [ledger.ErrUnknownTask].
type UnreadableError struct {
	Task *ledger.ArchivedError // or nil
	File string                // of events, without Task
	Err  error
}

// Error states where the events should be, and why they cannot be read.
func (e *UnreadableError) Error() string {
	if e.Task == nil {
		return fmt.Sprintf("events were archived to %s: %s", e.File, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Task, e.Err)
}

// Unwrap returns the error of the archive.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Events returns the events of an archived task in the order of positions. If its key was archived before, too, they
// begin with the first event of that task. It reads the volume that the ledger has recorded, and other volumes of that
// ledger in its archive only if versions are missing in it. If one place cannot be read, it reads the other.
//
// Errors: t if its events are in no file; [*UnreadableError]; [ledger.ErrUnknownTask] if the files contain another key
// with the same hash.
func (s Source) Events(ctx context.Context, t *ledger.ArchivedError) ([]ledger.Event, error) {
	recorded, volume, _ := cutVolume(t.File)
	if recorded == "" && s.Place == "" {
		return nil, t
	}
	var unread error // the last one, of the place where the task was archived
	for _, place := range slices.Compact([]string{s.Place, recorded}) {
		if place == "" {
			continue
		}
		events, err := s.at(ctx, place, volume, t)
		if errors.Is(err, fs.ErrNotExist) { // an erasure may have replaced files since the manifest was read
			events, err = s.at(ctx, place, volume, t)
		}
		switch {
		case err != nil:
			unread = err
		case len(events) > 0:
			return events, nil
		}
	}
	switch {
	case unread != nil:
		return nil, &UnreadableError{Task: t, Err: unread}
	case volume == "":
		return nil, t
	}
	return nil, fmt.Errorf("%s: %w", t.Key, ledger.ErrUnknownTask)
}

// History implements [feed.Archive].
//
// Errors: those of [Source.Events], and errors of the database.
func (s Source) History(ctx context.Context, db ledger.DB, of ledger.Event) ([]ledger.Event, error) {
	known, err := ledger.Archived(ctx, db, of.Key)
	if err != nil {
		return nil, err
	}
	isOf := func(e ledger.Event) bool { return e.Position == of.Position }
	var none error // the events are in no file
	if known[0] != nil {
		events, err := s.Events(ctx, known[0])
		switch {
		case err == nil && slices.ContainsFunc(events, isOf):
			return events, nil
		case errors.As(err, new(*ledger.ArchivedError)):
			none = err
		case err != nil && !errors.Is(err, ledger.ErrUnknownTask):
			return nil, err
		}
	}
	files, err := Beyond(ctx, db, feed.Beginning().Snapshot) // the key is forgotten, or was meanwhile
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f File) bool { return of.Position < f.First || of.Position > f.Last })
	for place, volumes := range s.volumes(files) {
		events, err := s.historyIn(ctx, db, place, volumes, of.Key)
		if errors.Is(err, fs.ErrNotExist) { // an erasure may have replaced files since the manifest was read
			events, err = s.historyIn(ctx, db, place, volumes, of.Key)
		}
		switch {
		case err != nil:
			return nil, &UnreadableError{File: VolumeAt(place, volumes[0]), Err: err}
		case slices.ContainsFunc(events, isOf):
			return events, nil
		}
	}
	return nil, none
}

// historyIn returns the events of a task in volumes of an archive.
func (s Source) historyIn(
	ctx context.Context, db ledger.DB, place string, volumes []string, k ledger.Key,
) ([]ledger.Event, error) {
	r, err := s.openPlace(ctx, db, place, volumes)
	if err != nil {
		return nil, err
	}
	records, err := r.History(ctx, k)
	if err != nil {
		return nil, err
	}
	if err := blank(ctx, db, records); err != nil {
		return nil, err
	}
	return r.events(records)
}

// events converts records of the volumes to events, in the order of positions.
func (r *Reader) events(records []Record) (events []ledger.Event, err error) {
	slices.SortFunc(records, func(a, b Record) int { return int(min(max(a.Position-b.Position, -1), 1)) })
	logins := r.logins()
	events = make([]ledger.Event, len(records))
	for i, record := range records {
		if events[i], err = ledger.Upcast(record.LedgerEvent(logins[record.LoginID])); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// at returns the events of a task in one archive, first of a volume, "" for none.
func (s Source) at(ctx context.Context, place, volume string, t *ledger.ArchivedError) ([]ledger.Event, error) {
	store, err := s.Open(place)
	if err != nil {
		return nil, err
	}
	var r *Reader
	var records []Record
	if volume != "" {
		if r, err = Open(ctx, store, volume); err != nil {
			return nil, err
		}
		if records, err = r.History(ctx, t.Key); err != nil {
			return nil, err
		}
	}
	if !isWhole(records, t.Version) && (volume == "" || len(records) > 0) {
		of := ""
		if r != nil {
			of = r.volumes[0].Ledger
		}
		if r, err = Open(ctx, store); err != nil {
			return nil, err
		}
		r.volumes = slices.DeleteFunc(r.volumes, func(m *Manifest) bool { return of != "" && m.Ledger != of })
		if records, err = r.History(ctx, t.Key); err != nil {
			return nil, err
		}
		if n := len(records); volume == "" && n > 0 && records[n-1].Version < t.Version {
			return nil, nil // an export from before the task's end
		}
	}
	for i := range records {
		if records[i].Position <= t.ErasedUntil { // the archive may be an old copy
			erase(&records[i])
		}
	}
	return r.events(records)
}

// isWhole reports whether records, in the order of versions, contain all of a task's versions.
func isWhole(records []Record, last ledger.Version) bool {
	next := ledger.Version(1)
	for _, r := range records {
		if r.Version > next {
			return false
		}
		next = r.Version + 1
	}
	return next > last
}

// logins returns the names of the volumes' logins.
func (r *Reader) logins() map[int32]string {
	names := make(map[int32]string)
	for _, m := range r.volumes {
		for _, l := range m.Logins {
			names[l.ID] = l.Name
		}
	}
	return names
}

// Task returns the archived task that events of [Source.Events] describe, in the state in which it was archived.
//
// Errors: [*ledger.IllegalError].
func Task(t *ledger.ArchivedError, events []ledger.Event) (ledger.Task, error) {
	task, err := Fold(events)
	for end := len(events); err == nil && task.State != t.State && end > 0; {
		// A duplicate that was discarded and archived follows the task.
		for end--; end > 0 && events[end].Version > 1; end-- {
		}
		if end > 0 {
			task, err = Fold(events[:end])
		}
	}
	task.ArchivedAt = t.At
	return task, err
}

// Fold returns the task after events of [Source.Events], the last of several with the key.
//
// Errors: [*ledger.IllegalError].
func Fold(events []ledger.Event) (ledger.Task, error) {
	begin := max(len(events)-1, 0)
	for begin > 0 && events[begin].Version > 1 {
		begin--
	}
	return ledger.Fold(events[begin:])
}
