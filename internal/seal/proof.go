package seal

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/task.sql
var taskSQL string

// Proof proves that an event is in the tree of a checkpoint: its inclusion proof by RFC 6962.
type Proof struct {
	Checkpoint Checkpoint       `json:"checkpoint"` // of the tree that the proof is for
	Leaf       int64            `json:"leaf"`       // from 0
	Hashes     tlog.RecordProof `json:"hashes"`
	Salt       []byte           `json:"salt"` // 16 bytes; after erasure the digest of 32 bytes
	Event      Event            `json:"event"`
}

// UnmarshalJSON returns an error unless the text contains exactly the members that Marshal writes, with the same
// values. A reader could take other texts for proved: a member named in another case or given twice, null or nothing
// in place of 0, different base64 of the same bytes.
func (p *Proof) UnmarshalJSON(text []byte) error {
	type fields Proof
	var read fields
	if err := strictjson.Unmarshal(text, &read); err != nil {
		return err
	}
	same, err := json.Marshal(read)
	if err == nil && !equalJSON(text, same) {
		err = errors.New("a member is missing, null, or not in the form in which proofs are written")
	}
	if err != nil {
		return err
	}
	*p = Proof(read)
	return nil
}

// equalJSON reports whether two valid texts contain the same members with the same values, numbers digit by digit.
func equalJSON(a, b []byte) bool {
	read := func(text []byte) (value any) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		_ = d.Decode(&value)
		return value
	}
	return reflect.DeepEqual(read(a), read(b))
}

// IsErased reports whether the proof lacks the text of data, meta and actor: the text was erased, or removed from the
// proof as erasure does. Then the proof proves only their digest, not that they were empty.
func (p Proof) IsErased() bool { return len(p.Salt) == digestBytes }

// Record returns the record of the event, see the package comment. It contains neither the salt nor the text of data,
// meta and actor, so that a reader without the right to that text may have it.
func (p Proof) Record() ([]byte, error) { return p.Event.sealed(p.Salt) }

// Check returns nil if the tree of c contains the event. It needs no database: c is a checkpoint that the caller has
// kept. It returns [ErrMismatch] if the event or the proof was changed, or if the proof is for another tree.
func (p Proof) Check(c Checkpoint) error {
	leaf, err := p.Event.leaf(p.Salt)
	switch of := p.Checkpoint; {
	case err != nil:
	case of != c:
		err = fmt.Errorf("the proof is for %s, %d leaves, %s; the checkpoint is %s, %d leaves, %s", of.Origin, of.Size,
			of.Root, c.Origin, c.Size, c.Root)
	case !p.Event.RecordedAt.Equal(p.Event.RecordedAt.Truncate(time.Microsecond)):
		err = errors.New("recorded_at has parts of a microsecond")
	}
	if err == nil {
		err = tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Leaf, leaf)
	}
	if err != nil {
		return fmt.Errorf("%s version %d: %w: %w", p.Event.Key, p.Event.Version, ErrMismatch, err)
	}
	return nil
}

// TaskEvent is an event of a task with its proof. Proof is nil if the tree does not contain the event.
type TaskEvent struct {
	Version ledger.Version `json:"version"`
	Proof   *Proof         `json:"proof"`
}

// ProveTask returns the next events of a task after a version, at most limit of them, with their proofs for the tree of
// c. It does not check the proofs: see [Proof.Check]. Its cost does not grow with the ledger.
//
// Errors: [*TilesError]; [ErrNotSealed] if c has more leaves than the ledger, [ErrMismatch] if the ledger's tree of
// that size differs.
func ProveTask(
	ctx context.Context, db ledger.DB, a Archive, k ledger.Key, after ledger.Version, limit int, c Checkpoint,
) ([]TaskEvent, error) {
	if err := CheckPrefix(ctx, db, a, c); err != nil {
		return nil, err
	}
	events, err := readTask(ctx, db, k, after, limit, c)
	if err != nil {
		return nil, err
	}
	if err := addHashes(&tree{ctx, db, a}, events, c.Size); err != nil {
		return nil, fmt.Errorf("prove %s: %w", k, err)
	}
	return events, nil
}

// addHashes adds the hashes to the proofs of events, for the tree with size leaves. It reads all hashes at once: a
// first pass collects the indexes that the proofs need.
func addHashes(r tlog.HashReader, events []TaskEvent, size int64) error {
	hashes := make(map[int64]tlog.Hash)
	prove := func() error {
		known := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
			found := make([]tlog.Hash, len(indexes))
			for i, index := range indexes {
				found[i] = hashes[index]
				hashes[index] = found[i]
			}
			return found, nil
		})
		for _, e := range events {
			if e.Proof == nil {
				continue
			}
			var err error
			if e.Proof.Hashes, err = tlog.ProveRecord(size, e.Proof.Leaf, known); err != nil {
				return err
			}
		}
		return nil
	}
	if err := prove(); err != nil {
		return err
	}
	indexes := slices.Sorted(maps.Keys(hashes))
	read, err := r.ReadHashes(indexes)
	if err != nil {
		return err
	}
	for i, index := range indexes {
		hashes[index] = read[i]
	}
	return prove()
}

// CheckPrefix returns nil if the ledger's tree contains the tree of a checkpoint.
//
// Errors: [ErrNotSealed] if the checkpoint has more leaves than the ledger, [ErrMismatch] if the ledger's tree of that
// size differs; [*TilesError].
func CheckPrefix(ctx context.Context, db ledger.DB, a Archive, c Checkpoint) error {
	e, err := readEnd(ctx, db)
	if err != nil {
		return err
	}
	if c.Size > e.leaves {
		return fmt.Errorf("%w: %d and %d", ErrNotSealed, e.leaves, c.Size)
	}
	f, err := readFrontier(ctx, db, a, c.Size)
	if err != nil {
		return err
	}
	root, err := f.root()
	if err == nil && root != c.Root {
		err = fmt.Errorf("%w: the tree of %d leaves has the hash %s, the checkpoint %s", ErrMismatch, c.Size, root,
			c.Root)
	}
	return err
}

// readTask returns events with proofs whose hashes are still missing.
func readTask(
	ctx context.Context, db ledger.DB, k ledger.Key, after ledger.Version, limit int, c Checkpoint,
) ([]TaskEvent, error) {
	rows, err := db.Query(ctx, taskSQL, string(k.Kind), string(k.BizID), int64(after), int64(limit))
	if err != nil {
		return nil, explain("read the seal", err)
	}
	defer rows.Close()
	var events []TaskEvent
	for rows.Next() {
		p := &Proof{Checkpoint: c}
		var salt string
		if err := rows.Scan(append([]any{&p.Leaf, &salt}, p.Event.columns()...)...); err != nil {
			return nil, explain("read the seal", err)
		}
		if p.Salt, err = hex.DecodeString(salt); err != nil {
			return nil, &ledger.CorruptError{What: "salts of the seal", Err: err}
		}
		e := TaskEvent{Version: p.Event.Version}
		if p.Leaf >= 0 && p.Leaf < c.Size {
			e.Proof = p
		}
		events = append(events, e)
	}
	return events, explain("read the seal", rows.Err())
}
