package console

import (
	"context"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/seal"
)

// sealView is the seal of an event on the page of its task.
type sealView struct {
	Version    int
	Checkpoint seal.Checkpoint // of all that is sealed
	IsSealed   bool
	Problem    string // why the event is not the one that was sealed

	Leaf   int64
	Record string // without salt and data: a salt would confirm guesses of values that the page hides
	Hashes []string
}

// readSeal returns the seal of an event.
func (h *Handler) readSeal(ctx context.Context, k ledger.Key, version int) (*sealView, error) {
	c, err := seal.Newest(ctx, h.config.DB)
	if err != nil {
		return nil, err
	}
	s := &sealView{Version: version, Checkpoint: c}
	events, err := seal.ProveTask(ctx, h.config.DB, k, ledger.Version(version-1), 1, c)
	if err != nil || len(events) == 0 || events[0].Proof == nil {
		return s, err
	}
	p := events[0].Proof
	s.IsSealed, s.Leaf = true, p.Leaf
	if err := p.Check(c); err != nil {
		s.Problem = err.Error()
		return s, nil
	}
	record, err := p.Record()
	if err != nil {
		return nil, err
	}
	s.Record = string(record)
	for _, hash := range p.Hashes {
		s.Hashes = append(s.Hashes, hash.String())
	}
	return s, nil
}
