package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

// VerifyOptions are the options of [Verify]. Nil is the default of every field.
type VerifyOptions struct {
	// Volumes are the volumes to verify. Default: all complete ones.
	Volumes []string
	// Ledger is the origin of the ledger to which all volumes must belong. Default: the first volume's.
	Ledger string
	// Checkpoints were kept outside: they must be of the same tree as the volumes' checkpoints. Those of a larger tree
	// than the newest volume's are not compared: the files do not contain that tree. Default: none.
	Checkpoints []seal.Checkpoint
	// Progress is called after each segment with the number of verified events and of all. Default: disabled.
	Progress func(done, total int64)
}

// Report is the result of [Verify].
type Report struct {
	Volumes  int   `json:"volumes"`
	Events   int64 `json:"events"`
	Proved   int64 `json:"proved"`   // events that are in the tree of a checkpoint
	Unproved int64 `json:"unproved"` // events that were not sealed, or that no checkpoint of their volume covers
	Erased   int64 `json:"erased"`   // events whose personal data is erased
	// Checkpoint is of the largest tree that proves events; nil: no event is proved.
	Checkpoint *seal.Checkpoint `json:"checkpoint"`
	Compared   int              `json:"compared"` // checkpoints kept outside that are of this tree
	Newer      int              `json:"newer"`    // checkpoints kept outside of larger trees, not compared
	// Positions are the ranges that were exported, of all kinds, in order. Of other volumes, only the ledger knows
	// whether one is missing.
	Positions []Positions `json:"positions,omitempty"`
}

// Positions are all positions from one to another.
type Positions struct {
	From ledger.Position `json:"from"`
	To   ledger.Position `json:"to"`
}

// positions returns the positions of volumes of ranges.
func positions(volumes []*Manifest) (all []Positions) {
	var ranges []Positions
	for _, m := range volumes {
		if m.Content == Range && len(m.Kinds) == 0 {
			ranges = append(ranges, Positions{m.From, m.To})
		}
	}
	slices.SortFunc(ranges, func(a, b Positions) int { return cmp.Compare(a.From, b.From) })
	for _, r := range ranges {
		if n := len(all); n > 0 && r.From <= all[n-1].To+1 {
			all[n-1].To = max(all[n-1].To, r.To)
			continue
		}
		all = append(all, r)
	}
	return all
}

// Verify verifies volumes without a database: the form and the hash of each file, the order and the number of events,
// the index, and for each sealed event that it is the leaf of the tree that its manifest's checkpoint names. It reads
// all events, in constant memory.
//
// Errors: [*FileError] for the first file that is damaged, forged, or of another ledger;
// [seal.ErrInconsistent] for tiles of another tree; errors of the store.
func Verify(ctx context.Context, s Store, o *VerifyOptions) (Report, error) {
	if o == nil {
		o = &VerifyOptions{}
	}
	r, err := Open(ctx, s, o.Volumes...)
	if err != nil {
		return Report{}, err
	}
	v := &verifier{store: s, origin: o.Ledger, progress: o.Progress, log: seal.Log{
		Fetch: func(ctx context.Context, path string) ([]byte, error) { return s.Get(ctx, path, 0, -1) },
	}}
	for _, m := range r.volumes {
		v.total += m.Events
	}
	v.report.Positions = positions(r.volumes)
	if err := v.compareCheckpoints(ctx, r.volumes, o.Checkpoints); err != nil {
		return v.report, err
	}
	for _, m := range r.volumes {
		if err := v.verify(ctx, m); err != nil {
			return v.report, err
		}
	}
	return v.report, nil
}

// compareCheckpoints checks that the checkpoints in the volumes and the ones kept outside are of one tree.
func (v *verifier) compareCheckpoints(ctx context.Context, volumes []*Manifest, kept []seal.Checkpoint) error {
	var largest *seal.Checkpoint
	for _, m := range volumes {
		if m.Checkpoint != nil && (largest == nil || m.Checkpoint.Size > largest.Size) {
			largest = m.Checkpoint
		}
	}
	v.report.Checkpoint = largest
	if largest == nil {
		if len(kept) > 0 {
			return fmt.Errorf("%w: no volume names a checkpoint", seal.ErrNotSealed)
		}
		return nil
	}
	compare := func(what string, c seal.Checkpoint) error {
		older := c
		older.Origin = largest.Origin // a published log may have a name
		if err := v.log.Compare(ctx, older, *largest); err != nil {
			return fmt.Errorf("%s of %d leaves: %w", what, c.Size, err)
		}
		return nil
	}
	for _, m := range volumes {
		if m.Checkpoint != nil {
			if err := compare("volume "+m.Name+", its checkpoint", *m.Checkpoint); err != nil {
				return err
			}
		}
	}
	for _, c := range kept {
		if c.Size > largest.Size {
			v.report.Newer++
			continue
		}
		if err := compare("the checkpoint", c); err != nil {
			return err
		}
		v.report.Compared++
	}
	return nil
}

// verifier is a call of Verify.
type verifier struct {
	store    Store
	origin   string
	progress func(done, total int64)
	log      seal.Log
	total    int64
	report   Report

	tree   tlog.HashReader // of the volume's checkpoint
	leaves []leaf          // to be compared with the tree
}

// leaf is the leaf of an event.
type leaf struct {
	number int64
	hash   tlog.Hash
	file   string
	record string
}

// leavesAtOnce is how many leaves are compared at once.
const leavesAtOnce = 4096

func (v *verifier) verify(ctx context.Context, m *Manifest) error {
	if v.origin == "" {
		v.origin = m.Ledger
	}
	manifest := object(m.Name, manifestFile)
	switch {
	case m.Ledger != v.origin:
		return &FileError{File: manifest, Problem: fmt.Sprintf("it is of the ledger %s, want %s", m.Ledger, v.origin)}
	case m.Checkpoint != nil && !m.Checkpoint.IsOf(m.Ledger):
		return &FileError{File: manifest, Problem: "its checkpoint is of another ledger, " + m.Checkpoint.Origin}
	}
	v.tree = nil
	if m.Checkpoint != nil {
		v.tree = v.log.Hashes(ctx, *m.Checkpoint)
	}
	var want fingerprint
	for i := range m.Segments {
		if err := v.verifySegment(ctx, m, i, &want); err != nil {
			return err
		}
	}
	if err := v.verifyIndex(ctx, m, want); err != nil {
		return err
	}
	v.report.Volumes++
	return nil
}

func (v *verifier) verifySegment(ctx context.Context, m *Manifest, i int, index *fingerprint) error {
	r, err := newSegmentReader(ctx, v.store, m, i)
	if err != nil {
		return err
	}
	defer r.close()
	keys, of := make(map[[hashBytes]byte]struct{}), frame{}
	addKeys := func() {
		for hash := range keys {
			index.add(newEntry(hash, of.segment, of.offset, of.length))
		}
		clear(keys)
	}
	for {
		record, _, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if r.frame != of {
			addKeys()
			of = r.frame
		}
		keys[KeyHash(record.Key)] = struct{}{}
		if len(m.Kinds) > 0 && !slices.Contains(m.Kinds, record.Kind) {
			return r.fail("position %d is of kind %s, which is not in the plan", record.Position, record.Kind)
		}
		if err := v.addLeaf(m, r, &record); err != nil {
			return err
		}
	}
	addKeys()
	if err := v.compareLeaves(); err != nil {
		return err
	}
	if v.progress != nil {
		v.progress(v.report.Events, v.total)
	}
	return nil
}

// addLeaf computes the leaf of an event, to be compared with the tree.
func (v *verifier) addLeaf(m *Manifest, r *segmentReader, record *Record) error {
	v.report.Events++
	if len(record.Salt) > 16 {
		v.report.Erased++
	}
	if (record.Leaf == nil) != (record.Salt == nil) {
		return r.fail("position %d has a leaf or a salt, and not the other", record.Position)
	}
	if record.Leaf == nil || m.Checkpoint == nil || *record.Leaf >= m.Checkpoint.Size {
		v.report.Unproved++
		return nil
	}
	hash, err := record.LeafHash()
	if err != nil {
		return r.fail("position %d: %s", record.Position, err)
	}
	if *record.Leaf < 0 {
		return r.fail("position %d is of leaf %d", record.Position, *record.Leaf)
	}
	v.leaves = append(v.leaves, leaf{*record.Leaf, hash, r.object,
		fmt.Sprintf("%s version %d, position %d", record.Key, record.Version, record.Position)})
	if len(v.leaves) < leavesAtOnce {
		return nil
	}
	return v.compareLeaves()
}

// compareLeaves compares leaves with the tiles, which are verified with the checkpoint.
func (v *verifier) compareLeaves() error {
	indexes := make([]int64, len(v.leaves))
	for i, l := range v.leaves {
		indexes[i] = tlog.StoredHashIndex(0, l.number)
	}
	if len(indexes) == 0 {
		return nil
	}
	hashes, err := v.tree.ReadHashes(indexes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the archive lacks a tile of the tree: %w", err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", seal.ErrInconsistent, err)
	}
	for i, l := range v.leaves {
		if hashes[i] != l.hash {
			return &FileError{File: l.file, Problem: fmt.Sprintf("%s is not leaf %d of the sealed tree", l.record,
				l.number)}
		}
	}
	v.report.Proved += int64(len(v.leaves))
	v.leaves = v.leaves[:0]
	return nil
}

// verifyIndex compares the index with the entries that the segments must have.
func (v *verifier) verifyIndex(ctx context.Context, m *Manifest, want fingerprint) error {
	var got fingerprint
	var last entry
	for _, p := range m.Index {
		name := object(m.Name, p.File)
		data, err := v.store.Get(ctx, name, 0, -1)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		sum := sha256.Sum256(data)
		if int64(len(data)) != p.Bytes || hex.EncodeToString(sum[:]) != p.SHA256 {
			return &FileError{File: name, Problem: fmt.Sprintf(
				"%d bytes with SHA-256 %x, and the manifest has %d with %s", len(data), sum, p.Bytes, p.SHA256)}
		}
		for _, e := range decodeEntries(data) {
			if compareEntries(last, e) >= 0 {
				return &FileError{File: name, Problem: "its entries are not in order"}
			}
			got.add(e)
			last = e
		}
	}
	if got != want {
		return &FileError{File: object(m.Name, manifestFile), Problem: fmt.Sprintf(
			"the index does not match the segments: %d entries, want %d", got.n, want.n)}
	}
	return nil
}

// fingerprint identifies a set of entries, in any order.
type fingerprint struct {
	n   int64
	sum [4]uint64
}

func (f *fingerprint) add(e entry) {
	hash := sha256.Sum256(e[:])
	for i := range f.sum {
		f.sum[i] += binary.BigEndian.Uint64(hash[8*i:])
	}
	f.n++
}
