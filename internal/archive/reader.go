package archive

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/taskledger/taskledger/ledger"
)

// Reader reads the complete volumes of an archive. It is safe for concurrent use.
type Reader struct {
	store   Store
	volumes []*Manifest // in the order of their names
}

// Open reads the manifests of an archive's volumes: of those with these names, or else of all complete ones.
//
// Errors: an error that is [fs.ErrNotExist] for a missing volume; [*FileError]; errors of the store.
func Open(ctx context.Context, s Store, volumes ...string) (*Reader, error) {
	if len(volumes) == 0 {
		var err error
		if volumes, err = ListVolumes(ctx, s); err != nil {
			return nil, err
		}
	}
	r := &Reader{store: s}
	for _, name := range volumes {
		m, err := ReadManifest(ctx, s, name)
		if err != nil {
			return nil, fmt.Errorf("read the manifest of volume %s: %w", name, err)
		}
		r.volumes = append(r.volumes, &m)
	}
	return r, nil
}

// Manifests returns the manifests of the volumes.
func (r *Reader) Manifests() []Manifest {
	all := make([]Manifest, len(r.volumes))
	for i, m := range r.volumes {
		all[i] = *m
	}
	return all
}

// History returns the events of a task in the order of their versions, and none if the archive has none. It reads one
// piece of the index in each volume, and the frames with events of the task.
//
// Errors: [*FileError]; errors of the store.
func (r *Reader) History(ctx context.Context, k ledger.Key) (records []Record, err error) {
	for _, m := range r.volumes {
		frames, err := m.find(ctx, r.store, KeyHash(k))
		if err != nil {
			return nil, err
		}
		for _, f := range frames {
			found, err := readFrame(ctx, r.store, m, f, k)
			if err != nil {
				return nil, err
			}
			records = append(records, found...)
		}
	}
	slices.SortStableFunc(records, func(a, b Record) int {
		if a.Version != b.Version {
			return int(a.Version - b.Version)
		}
		return int(a.Position - b.Position)
	})
	return unique(records)
}

// unique removes further copies of an event, as in an export of a range that was archived, too.
func unique(records []Record) (all []Record, err error) {
	for _, record := range records {
		if n := len(all); n > 0 && all[n-1].Position == record.Position {
			if all[n-1], err = merge(all[n-1], record); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, record)
	}
	return all, nil
}

// merge returns the better one of two copies of an event: the sealed one, and without texts if one is erased. An
// erasure rewrites one volume after the other, and a volume may be of an old copy.
func merge(a, b Record) (Record, error) {
	if !reflect.DeepEqual(a.Event, b.Event) {
		blankA, blankB := a, b
		if erase(&blankA) != erase(&blankB) {
			a, b = blankA, blankB
		}
	}
	if !reflect.DeepEqual(a.Event, b.Event) {
		return Record{}, &FileError{File: volumesPrefix, Problem: fmt.Sprintf(
			"two volumes contain different events at position %d, %s version %d and %s version %d", a.Position,
			a.Key, a.Version, b.Key, b.Version)}
	}
	if a.Leaf == nil {
		return b, nil
	}
	return a, nil
}

// Range calls f with each event from a position on, in the order of positions, once. It stops at the first error, and
// returns it. Its memory does not grow with the archive, except with the number of segments that overlap.
//
// Errors: errors of f and of the store; [*FileError].
func (r *Reader) Range(ctx context.Context, from ledger.Position, f func(Record) error) error {
	m := newMerger(from, r)
	defer m.close()
	for {
		record, ok, err := m.next(ctx)
		if err != nil || !ok {
			return err
		}
		if err := f(record); err != nil {
			return err
		}
	}
}

// merger reads the events of volumes in the order of positions, each once.
type merger struct {
	from    ledger.Position
	waiting []*source // by their first positions
	open    sources
	last    *Record // the next one, unless a copy of it follows
}

// newMerger returns a merger of the events from a position on.
func newMerger(from ledger.Position, readers ...*Reader) *merger {
	m := &merger{from: from}
	for _, r := range readers {
		for _, v := range r.volumes {
			for i, s := range v.Segments {
				if s.Last >= from {
					m.waiting = append(m.waiting, &source{store: r.store, manifest: v, index: i, first: s.First})
				}
			}
		}
	}
	slices.SortStableFunc(m.waiting, func(a, b *source) int { return int(min(max(a.first-b.first, -1), 1)) })
	return m
}

func (m *merger) close() {
	for _, s := range m.open {
		s.reader.close()
	}
}

// next returns the next event. It returns false at the end.
func (m *merger) next(ctx context.Context) (Record, bool, error) {
	for {
		record, ok, err := m.pull(ctx)
		last := m.last
		switch {
		case err != nil:
			return Record{}, false, err
		case !ok && last == nil:
			return Record{}, false, nil
		case !ok:
			m.last = nil
			return *last, true, nil
		case last == nil || last.Position != record.Position:
			if m.last = &record; last != nil {
				return *last, true, nil
			}
		default:
			merged, err := merge(*last, record)
			if err != nil {
				return Record{}, false, err
			}
			m.last = &merged
		}
	}
}

// pull returns the next record of all segments.
func (m *merger) pull(ctx context.Context) (record Record, ok bool, err error) {
	for len(m.waiting) > 0 && (len(m.open) == 0 || m.waiting[0].first <= m.open[0].record.Position) {
		s := m.waiting[0]
		m.waiting = m.waiting[1:]
		if ok, err := s.begin(ctx, m.from); err != nil {
			return Record{}, false, err
		} else if ok {
			heap.Push(&m.open, s)
		}
	}
	if len(m.open) == 0 {
		return Record{}, false, nil
	}
	record = m.open[0].record
	m.open[0].reader.ctx = ctx
	switch ok, err := m.open[0].advance(); {
	case err != nil:
		return Record{}, false, err
	case ok:
		heap.Fix(&m.open, 0)
	default:
		heap.Pop(&m.open).(*source).reader.close()
	}
	return record, true, nil
}

// source is a segment that a merger reads.
type source struct {
	store    Store
	manifest *Manifest
	index    int
	first    ledger.Position
	reader   *segmentReader
	record   Record // the next one
}

// begin opens the segment at a position. It returns false if the segment ends before it.
func (s *source) begin(ctx context.Context, from ledger.Position) (bool, error) {
	reader, err := newSegmentReader(ctx, s.store, s.manifest, s.index)
	if err != nil {
		return false, err
	}
	s.reader = reader
	for {
		ok, err := s.advance()
		if err != nil || !ok {
			reader.close()
			return false, err
		}
		if s.record.Position >= from {
			return true, nil
		}
	}
}

func (s *source) advance() (bool, error) {
	record, _, err := s.reader.next()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	s.record = record
	return err == nil, err
}

// sources is a heap of sources, by their next positions.
type sources []*source

func (s sources) Len() int           { return len(s) }
func (s sources) Less(i, j int) bool { return s[i].record.Position < s[j].record.Position }
func (s sources) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *sources) Push(x any)        { *s = append(*s, x.(*source)) }
func (s *sources) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
