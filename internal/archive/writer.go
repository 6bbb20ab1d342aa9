package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

// frameBytes is the size of the text in a frame: larger frames compress better, smaller ones are read faster.
const frameBytes = 128 << 10

// segmentBytes is the size of a compressed segment, which a writer keeps in memory. Tests make it smaller.
var segmentBytes = 4 << 20

// Writer writes a volume. It is for one goroutine, and keeps one segment in memory.
type Writer struct {
	store   Store
	plan    Plan
	encoder *zstd.Encoder

	done  []summary // the segments that are part of the volume
	place Place

	text    []byte // of the open frame
	keys    map[[hashBytes]byte]struct{}
	data    []byte // of the open segment: its complete frames
	entries []entry
	logins  map[int32]struct{} // login_id of its events
	open    Segment            // of the open segment and frame
}

// Place is how far a writer has come, with complete segments only.
type Place struct {
	Events int64
	Last   ledger.Position // of the last event; 0: no event
}

// Create begins a volume, or continues the unfinished volume of a writer with the same plan: see [Writer.Place].
//
// Errors: [*ledger.InvalidError] for the plan; [ErrExists] if the volume is complete, or has another plan.
func Create(ctx context.Context, s Store, p Plan) (*Writer, error) {
	if p.Kinds == nil {
		p.Kinds = []ledger.Kind{}
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return nil, err
	}
	w := &Writer{
		store: s, plan: p, encoder: encoder, keys: make(map[[hashBytes]byte]struct{}), logins: make(map[int32]struct{}),
	}
	text, err := marshalFile(p)
	if err != nil {
		return nil, err
	}
	err = s.Put(ctx, object(p.Name, planFile), text)
	fault.Point(fault.ArchivePlan)
	if !errors.Is(err, ErrExists) {
		return w, err
	}
	return w, w.resume(ctx)
}

// resume reads the segments that are part of the volume.
func (w *Writer) resume(ctx context.Context) error {
	before, err := readPlan(ctx, w.store, w.plan.Name)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(before, w.plan) {
		return fmt.Errorf("volume %s was begun with another plan: %w", w.plan.Name, ErrExists)
	}
	if m, err := ReadManifest(ctx, w.store, w.plan.Name); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.Join(w.tidy(ctx, m), fmt.Errorf("volume %s is complete: %w", w.plan.Name, ErrExists))
		}
		return err
	}
	for {
		name := object(w.plan.Name, summaryFile(len(w.done)+1))
		text, err := w.store.Get(ctx, name, 0, -1)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		var s summary
		if err := decodeFile(name, text, &s); err != nil {
			return err
		}
		w.add(s)
	}
}

func (w *Writer) add(s summary) {
	w.done = append(w.done, s)
	w.place = Place{w.place.Events + s.Events, s.Last}
}

// Place returns the place after the last complete segment: a writer of a [Range] continues with the next position.
func (w *Writer) Place() Place { return w.place }

// Add adds an event. Its position is above the position of the event before, unless Cut was called between them in a
// volume of tasks.
//
// Errors: [*ledger.InvalidError] for an event that the plan excludes; errors of [Writer.Cut].
func (w *Writer) Add(ctx context.Context, r *Record) error {
	last := w.open.Last
	if w.open.Events == 0 && w.plan.Content == Range {
		last = w.place.Last
	}
	rule := ""
	switch {
	case r.Position <= last:
		rule = fmt.Sprintf("must be above %d, the position of the event before", last)
	case w.plan.Content == Range && (r.Position < w.plan.From || r.Position > w.plan.To):
		rule = fmt.Sprintf("must be between %d and %d", w.plan.From, w.plan.To)
	}
	if rule != "" {
		return &ledger.InvalidError{Field: "position", Value: fmt.Sprint(int64(r.Position)), Rule: rule}
	}
	w.text = appendLine(w.text, r)
	w.keys[KeyHash(r.Key)] = struct{}{}
	w.logins[r.LoginID] = struct{}{}
	w.open.note(r)
	if len(w.text) < frameBytes {
		return nil
	}
	w.endFrame()
	if len(w.data) < segmentBytes {
		return nil
	}
	return w.Cut(ctx)
}

// note adds an event to the totals of a segment.
func (s *Segment) note(r *Record) {
	at := r.RecordedAt.UTC()
	if s.Events == 0 {
		s.First, s.Earliest, s.Latest = r.Position, at, at
	}
	s.Events, s.Last = s.Events+1, r.Position
	if at.Before(s.Earliest) {
		s.Earliest = at
	}
	if at.After(s.Latest) {
		s.Latest = at
	}
}

// endFrame compresses the open frame.
func (w *Writer) endFrame() {
	if len(w.text) == 0 {
		return
	}
	offset := len(w.data)
	w.data = w.encoder.EncodeAll(w.text, w.data)
	for hash := range w.keys {
		w.entries = append(w.entries, newEntry(hash, len(w.done)+1, offset, len(w.data)-offset))
	}
	clear(w.keys)
	w.text = w.text[:0]
}

// Cut ends the open segment. When it returns nil, all events so far are part of the volume and survive a crash.
//
// Errors: [ErrExists] if another writer writes this volume; errors of the store.
func (w *Writer) Cut(ctx context.Context) error {
	w.endFrame()
	if w.open.Events == 0 {
		return nil
	}
	n, s := len(w.done)+1, summary{Segment: w.open, LoginIDs: slices.Sorted(maps.Keys(w.logins))}
	sum := sha256.Sum256(w.data)
	s.Bytes, s.SHA256 = int64(len(w.data)), hex.EncodeToString(sum[:])
	s.File = segmentFile(n, s.SHA256)
	slices.SortFunc(w.entries, compareEntries)
	entries := encodeEntries(w.entries)
	s.Run = describe(entries)
	s.Run.File = runFile(n, s.Run.SHA256)
	text, err := marshalFile(s)
	if err != nil {
		return err
	}
	if err := w.put(ctx, s.File, w.data); err != nil {
		return err
	}
	fault.Point(fault.ArchiveSegment)
	if err := w.put(ctx, s.Run.File, entries); err != nil {
		return err
	}
	fault.Point(fault.ArchiveRun)
	if err := w.put(ctx, summaryFile(n), text); err != nil {
		if errors.Is(err, ErrExists) {
			err = fmt.Errorf("another process writes volume %s: %w", w.plan.Name, err)
		}
		return err
	}
	fault.Point(fault.ArchiveSummary)
	w.add(s)
	w.data, w.entries, w.open = w.data[:0], w.entries[:0], Segment{}
	clear(w.logins)
	return nil
}

// LoginIDs returns the login_id of all events that are part of the volume, in order.
func (w *Writer) LoginIDs() []int32 {
	ids := make(map[int32]struct{})
	for _, s := range w.done {
		for _, id := range s.LoginIDs {
			ids[id] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// put stores a file. It returns nil if the file exists with the same content: its answer was lost, or another writer
// has done the same work.
func (w *Writer) put(ctx context.Context, file string, data []byte) error {
	name := object(w.plan.Name, file)
	err := w.store.Put(ctx, name, data)
	if !errors.Is(err, ErrExists) {
		return err
	}
	found, readErr := w.store.Get(ctx, name, 0, -1)
	if readErr == nil && bytes.Equal(found, data) {
		return nil
	}
	return errors.Join(err, readErr)
}

// CloseOptions are the options of [Writer.Close]. Nil is the default of every field.
type CloseOptions struct {
	// Checkpoint is of a tree whose tiles the archive contains. Default: none.
	Checkpoint *seal.Checkpoint
	// Logins are the names for login_id of the events. Default: none.
	Logins []Login
}

// Close completes the volume: it writes the index and the manifest, and removes the files that they replace. If it
// ends early, call it again, in another process after [Create].
func (w *Writer) Close(ctx context.Context, o *CloseOptions) (Manifest, error) {
	if o == nil {
		o = &CloseOptions{}
	}
	if err := w.Cut(ctx); err != nil {
		return Manifest{}, err
	}
	m := Manifest{
		Format: format, Plan: w.plan, Checkpoint: o.Checkpoint, Logins: append([]Login{}, o.Logins...),
		Segments: []Segment{}, Index: []IndexPart{},
	}
	runs := make([]IndexPart, len(w.done))
	for i, s := range w.done {
		runs[i] = s.Run
		m.Segments = append(m.Segments, s.Segment)
		if i == 0 {
			m.First, m.Last, m.Earliest, m.Latest = s.First, s.Last, s.Earliest, s.Latest
		}
		m.Events, m.First, m.Last = m.Events+s.Events, min(m.First, s.First), max(m.Last, s.Last)
		m.Earliest, m.Latest = earlier(m.Earliest, s.Earliest), later(m.Latest, s.Latest)
	}
	if err := w.writeIndex(ctx, runs, &m); err != nil {
		return Manifest{}, err
	}
	fault.Point(fault.ArchiveIndex)
	text, err := marshalFile(m)
	if err != nil {
		return Manifest{}, err
	}
	if err := w.put(ctx, manifestFile, text); err != nil {
		return Manifest{}, err
	}
	fault.Point(fault.ArchiveManifest)
	return m, w.tidy(ctx, m)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// writeIndex merges the runs of all segments into the files of the index.
func (w *Writer) writeIndex(ctx context.Context, runs []IndexPart, m *Manifest) error {
	var data []byte
	flush := func() error {
		if len(data) == 0 {
			return nil
		}
		part := describe(data)
		part.File = indexFile(len(m.Index)+1, part.SHA256)
		if err := w.put(ctx, part.File, data); err != nil {
			return err
		}
		m.Index, data = append(m.Index, part), data[:0]
		return nil
	}
	err := mergeRuns(ctx, w.store, w.plan.Name, runs, func(e entry) error {
		data = append(data, e[:]...)
		if len(data) < partEntries*entryBytes {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// tidy removes the files that a complete volume does not need.
func (w *Writer) tidy(ctx context.Context, m Manifest) error {
	keep := map[string]bool{planFile: true, manifestFile: true}
	for _, s := range m.Segments {
		keep[s.File] = true
	}
	for _, p := range m.Index {
		keep[p.File] = true
	}
	names, err := w.store.List(ctx, object(m.Name, ""))
	if err != nil {
		return err
	}
	for _, name := range names {
		if !keep[path.Base(name)] {
			if err := w.store.Delete(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Discard removes an incomplete volume, so that its name is free again. It returns [ErrExists] if the volume
// is complete.
func Discard(ctx context.Context, s Store, volume string) error {
	if _, err := ReadManifest(ctx, s, volume); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("volume %s is complete: %w", volume, ErrExists)
		}
		return err
	}
	names, err := s.List(ctx, object(volume, ""))
	if err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b string) int { // the plan last, so that a killed call is seen
		return strings.Compare(fmt.Sprint(path.Base(a) == planFile, a), fmt.Sprint(path.Base(b) == planFile, b))
	})
	for _, name := range names {
		if err := s.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
