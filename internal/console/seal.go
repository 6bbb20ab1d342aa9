package console

import (
	"context"
	"errors"

	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
)

// sealView is the seal of the events on the page of a task: of the version that is shown, and of those before it.
type sealView struct {
	Version, First int             // the first version that was compared
	Checkpoint     seal.Checkpoint // of all that is sealed
	Changed        []seal.Proof    // of events that differ from the sealed ones
	Unsealed       []int           // versions
	Corrupt        string          // why the seal cannot be read
	Unread         string          // why the archive cannot be read that contains a part of the tree

	IsProved bool // a proof exists for the version that is shown
	IsErased bool // and the proof contains a digest in place of its data, meta and actor
	Leaf     int64
	Record   string // without salt and data: a salt would confirm guesses of values that the page hides
	Hashes   []string
}

// provedEvents is how many events of a task the page proves, the newest ones.
const provedEvents = 20

// readSeal returns the seal of a version of a task and of the versions before it, nil if nothing was ever sealed.
func (h *Handler) readSeal(ctx context.Context, k ledger.Key, version int) (*sealView, error) {
	s := &sealView{Version: version, First: max(1, version-provedEvents+1)}
	events, err := s.prove(ctx, h.config.DB, k)
	var corrupt *ledger.CorruptError
	if errors.As(err, &corrupt) || errors.Is(err, seal.ErrMismatch) || errors.Is(err, seal.ErrInconsistent) {
		s.Corrupt = err.Error()
		return s, nil
	}
	if unread, ok := errors.AsType[*seal.TilesError](err); ok && !errors.Is(err, seal.ErrInconsistent) {
		s.Unread = unread.Error()
		return s, nil
	}
	if err == nil && s.Checkpoint.Size == 0 {
		return nil, nil
	}
	for _, e := range events {
		if e.Proof == nil {
			s.Unsealed = append(s.Unsealed, int(e.Version))
			continue
		}
		p := *e.Proof
		record, err := p.Record()
		if err != nil || p.Check(s.Checkpoint) != nil {
			s.Changed = append(s.Changed, p)
			continue
		}
		if int(e.Version) != version {
			continue
		}
		s.IsProved, s.IsErased, s.Leaf, s.Record = true, p.IsErased(), p.Leaf, string(record)
		for _, hash := range p.Hashes {
			s.Hashes = append(s.Hashes, hash.String())
		}
	}
	return s, err
}

// prove returns the events of s with their proofs for the tree of all that is sealed.
func (s *sealView) prove(ctx context.Context, db ledger.DB, k ledger.Key) (events []seal.TaskEvent, err error) {
	if s.Checkpoint, err = seal.Newest(ctx, db); err != nil {
		return nil, err
	}
	return seal.ProveTask(ctx, db, seal.Archive{}, k, ledger.Version(s.First-1), s.Version-s.First+1, s.Checkpoint)
}
