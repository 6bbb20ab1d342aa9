package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

// eraser rewrites a volume without the texts of some tasks. New files are stored under the names of their hashes, next
// to the old ones; then the manifest is replaced, which names the new ones; then the old ones are removed. So a reader
// finds a whole volume, and a call that was killed is repeated.
type eraser struct {
	store    Store
	manifest *Manifest // the new one, once it is stored
	of       map[ledger.Key]ledger.Position
	digests  func(positions []int64, digests []string) error

	positions []int64
	digested  []string
}

// run returns the number of events that it has erased.
func (e *eraser) run(ctx context.Context) (events int64, err error) {
	keep := Writer{store: e.store, plan: e.manifest.Plan}
	affected, err := e.affected(ctx)
	if err != nil {
		return 0, err
	}
	m := *e.manifest
	m.Segments = slices.Clone(m.Segments)
	var entries []entry
	isRewritten := make(map[int]bool)
	for _, i := range affected {
		n, found, err := e.rewrite(ctx, i, &m)
		if err != nil {
			return 0, err
		}
		if n > 0 {
			isRewritten[i+1] = true
			entries = append(entries, found...)
		}
		events += n
	}
	if events == 0 {
		return 0, keep.tidy(ctx, *e.manifest) // of a call that was killed
	}
	if e.digests != nil && len(e.positions) > 0 {
		if err := e.digests(e.positions, e.digested); err != nil {
			return 0, err
		}
	}
	slices.SortFunc(entries, compareEntries)
	if err := e.index(ctx, &m, entries, isRewritten); err != nil {
		return 0, err
	}
	fault.Point(fault.EraseRewritten)
	text, err := marshalFile(m)
	if err != nil {
		return 0, err
	}
	if err := e.store.Replace(ctx, object(m.Name, manifestFile), text); err != nil {
		return 0, err
	}
	fault.Point(fault.EraseReplaced)
	return events, keep.tidy(ctx, m)
}

// affected returns the numbers of the segments, from 0, that contain events of the tasks.
func (e *eraser) affected(ctx context.Context) (segments []int, err error) {
	for key := range e.of {
		frames, err := e.manifest.find(ctx, e.store, KeyHash(key))
		if err != nil {
			return nil, err
		}
		for _, f := range frames {
			segments = append(segments, f.segment-1)
		}
	}
	slices.Sort(segments)
	return slices.Compact(segments), nil
}

// rewrite stores a segment without the texts, and returns how many events it has erased, and its entries.
func (e *eraser) rewrite(ctx context.Context, i int, m *Manifest) (events int64, entries []entry, err error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return 0, nil, err
	}
	r, err := newSegmentReader(ctx, e.store, e.manifest, i)
	if err != nil {
		return 0, nil, err
	}
	defer r.close()
	w := Writer{store: e.store, plan: m.Plan, encoder: encoder, done: make([]summary, i),
		keys: make(map[[hashBytes]byte]struct{})}
	for {
		record, _, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, nil, err
		}
		if until, ok := e.of[record.Key]; ok && record.Position <= until && erase(&record) {
			events++
			if record.Salt != nil {
				e.positions = append(e.positions, int64(record.Position))
				e.digested = append(e.digested, hex.EncodeToString(record.Salt))
			}
		}
		w.text = appendLine(w.text, &record)
		w.keys[KeyHash(record.Key)] = struct{}{}
		w.open.note(&record)
		if len(w.text) >= frameBytes {
			w.endFrame()
		}
	}
	w.endFrame()
	if events == 0 {
		return 0, nil, nil
	}
	sum := sha256.Sum256(w.data)
	s := w.open
	s.Bytes, s.SHA256 = int64(len(w.data)), hex.EncodeToString(sum[:])
	s.File = segmentFile(i+1, s.SHA256)
	m.Segments[i] = s
	err = w.put(ctx, s.File, w.data)
	fault.Point(fault.EraseSegment)
	return events, w.entries, err
}

// index stores the index with the new entries of the rewritten segments.
func (e *eraser) index(ctx context.Context, m *Manifest, entries []entry, isRewritten map[int]bool) error {
	w := Writer{store: e.store, plan: m.Plan}
	old := m.Index
	m.Index = []IndexPart{}
	var data []byte
	flush := func() error {
		if len(data) == 0 {
			return nil
		}
		part := describe(data)
		part.File = indexFile(len(m.Index)+1, part.SHA256)
		err := w.put(ctx, part.File, data)
		m.Index, data = append(m.Index, part), data[:0]
		return err
	}
	add := func(n entry) error {
		data = append(data, n[:]...)
		if len(data) < partEntries*entryBytes {
			return nil
		}
		return flush()
	}
	err := mergeRuns(ctx, e.store, m.Name, old, func(n entry) error {
		if isRewritten[n.frame().segment] {
			return nil
		}
		for len(entries) > 0 && compareEntries(entries[0], n) < 0 {
			if err := add(entries[0]); err != nil {
				return err
			}
			entries = entries[1:]
		}
		return add(n)
	})
	for ; err == nil && len(entries) > 0; entries = entries[1:] {
		err = add(entries[0])
	}
	if err != nil {
		return err
	}
	return flush()
}
