package archive

import (
	"bytes"
	"container/heap"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
)

const (
	hashBytes  = 16
	entryBytes = hashBytes + 3*4
	// partEntries is the greatest number of entries in a file of the index: 4 MB.
	partEntries = 1 << 22 / entryBytes
	// runsMemory bounds the memory of merging the runs of all segments.
	runsMemory = 16 << 20
)

// entry is an entry of the index. Entries are ordered as texts of bytes.
type entry [entryBytes]byte

func newEntry(hash [hashBytes]byte, segment, offset, length int) (e entry) {
	copy(e[:], hash[:])
	binary.BigEndian.PutUint32(e[hashBytes:], uint32(segment))
	binary.BigEndian.PutUint32(e[hashBytes+4:], uint32(offset))
	binary.BigEndian.PutUint32(e[hashBytes+8:], uint32(length))
	return e
}

// frame is a place in a segment.
type frame struct{ segment, offset, length int }

func (e entry) frame() frame {
	number := func(at int) int { return int(binary.BigEndian.Uint32(e[hashBytes+4*at:])) }
	return frame{number(0), number(1), number(2)}
}

func compareEntries(a, b entry) int { return bytes.Compare(a[:], b[:]) }

// encodeEntries returns the content of a file of entries.
func encodeEntries(entries []entry) []byte {
	data := make([]byte, 0, len(entries)*entryBytes)
	for _, e := range entries {
		data = append(data, e[:]...)
	}
	return data
}

func decodeEntries(data []byte) []entry {
	entries := make([]entry, len(data)/entryBytes)
	for i := range entries {
		entries[i] = entry(data[i*entryBytes:])
	}
	return entries
}

// describe returns the description of a file of entries, without its name.
func describe(data []byte) IndexPart {
	sum := sha256.Sum256(data)
	return IndexPart{
		Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), Entries: int64(len(data) / entryBytes),
		First: hex.EncodeToString(data[:hashBytes]),
	}
}

// run reads the sorted entries of a segment in pieces.
type run struct {
	ctx    context.Context
	store  Store
	part   IndexPart
	object string
	piece  int64 // entries at once
	next   int64 // entries read so far
	read   []entry
}

// fill reads the next piece. It returns false at the end.
func (r *run) fill() (bool, error) {
	if len(r.read) > 0 {
		return true, nil
	}
	n := min(r.piece, r.part.Entries-r.next)
	if n == 0 {
		return false, nil
	}
	data, err := r.store.Get(r.ctx, r.object, r.next*entryBytes, n*entryBytes)
	if err != nil {
		return false, err
	}
	if int64(len(data)) != n*entryBytes {
		return false, &FileError{File: r.object, Problem: "it is truncated"}
	}
	r.read, r.next = decodeEntries(data), r.next+n
	return true, nil
}

// runs is a heap of runs, by their first entry.
type runs []*run

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return compareEntries(r[i].read[0], r[j].read[0]) < 0 }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)        { *r = append(*r, x.(*run)) }
func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// mergeRuns calls f with all entries of the runs of a volume, in order.
func mergeRuns(ctx context.Context, s Store, volume string, parts []IndexPart, f func(entry) error) error {
	var all runs
	piece := max(runsMemory/entryBytes/int64(max(len(parts), 1)), 64)
	for _, p := range parts {
		r := &run{ctx: ctx, store: s, part: p, object: object(volume, p.File), piece: piece}
		if ok, err := r.fill(); err != nil {
			return err
		} else if ok {
			all = append(all, r)
		}
	}
	heap.Init(&all)
	for len(all) > 0 {
		r := all[0]
		if err := f(r.read[0]); err != nil {
			return err
		}
		r.read = r.read[1:]
		switch ok, err := r.fill(); {
		case err != nil:
			return err
		case ok:
			heap.Fix(&all, 0)
		default:
			heap.Pop(&all)
		}
	}
	return nil
}

// find returns the frames with events of a task. It usually reads one piece of one file: hashes are spread evenly, so
// the place of a hash is near its share of the range.
func (m *Manifest) find(ctx context.Context, s Store, hash [hashBytes]byte) (frames []frame, err error) {
	for i, p := range m.Index {
		first, _ := hex.DecodeString(p.First)
		end := bytes.Repeat([]byte{0xff}, hashBytes)
		if i+1 < len(m.Index) {
			end, _ = hex.DecodeString(m.Index[i+1].First)
		}
		if bytes.Compare(hash[:], first) < 0 || bytes.Compare(hash[:], end) > 0 {
			continue
		}
		found, err := p.find(ctx, s, object(m.Name, p.File), hash, share(hash[:], first, end))
		if err != nil {
			return nil, err
		}
		frames = append(frames, found...)
	}
	return frames, nil
}

// share returns the place of a hash between two others, from 0 to 1.
func share(hash, first, end []byte) float64 {
	number := func(b []byte) float64 { return float64(binary.BigEndian.Uint64(b)) }
	return min(max((number(hash)-number(first))/max(number(end)-number(first), 1), 0), 1)
}

// find returns the frames of a hash, which is expected at a share of the file.
func (p IndexPart) find(
	ctx context.Context, s Store, object string, hash [hashBytes]byte, share float64,
) (frames []frame, err error) {
	spread := int64(3*math.Sqrt(float64(p.Entries))) + 16
	middle := int64(share * float64(p.Entries))
	from, to := max(middle-spread, 0), min(middle+spread, p.Entries)
	for {
		data, err := s.Get(ctx, object, from*entryBytes, (to-from)*entryBytes)
		if err != nil {
			return nil, err
		}
		if int64(len(data)) != (to-from)*entryBytes {
			return nil, &FileError{File: object, Problem: "it is truncated"}
		}
		entries := decodeEntries(data)
		isBelow := func(e entry) bool { return bytes.Compare(e[:hashBytes], hash[:]) < 0 }
		isWhole := (from == 0 || isBelow(entries[0])) &&
			(to == p.Entries || bytes.Compare(entries[len(entries)-1][:hashBytes], hash[:]) > 0)
		if !isWhole {
			from, to = 0, p.Entries
			continue
		}
		at, _ := slices.BinarySearchFunc(entries, hash, func(e entry, h [hashBytes]byte) int {
			return bytes.Compare(e[:hashBytes], h[:])
		})
		for ; at < len(entries) && bytes.Equal(entries[at][:hashBytes], hash[:]); at++ {
			frames = append(frames, entries[at].frame())
		}
		return frames, nil
	}
}
