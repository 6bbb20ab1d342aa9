package seal

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Observation is the result of [Log.Observe].
type Observation struct {
	Verified

	Text    []byte     `json:"-"`       // the signed checkpoint, for the next call
	Earlier Checkpoint `json:"earlier"` // the checkpoint of the last call; zero: none
}

// Observe reads the newest checkpoint of a published log, and compares it with the signed checkpoint that an earlier
// call returned; nil: none. It needs no database. An auditor calls it from time to time, and keeps Text.
//
// Errors: [ErrSignature], also for the earlier checkpoint; [ErrInconsistent] if the log has lost leaves, or contains
// another tree; the errors of Fetch.
func (l Log) Observe(ctx context.Context, p Policy, earlier []byte) (Observation, error) {
	var o Observation
	var err error
	if o.Verified, o.Text, err = l.Newest(ctx, p); err != nil {
		return o, err
	}
	if earlier == nil {
		// Without an earlier checkpoint the tiles must at least belong to this one.
		if o.Size > 0 {
			err = l.readEdge(ctx, o.Checkpoint)
		}
		return o, err
	}
	// The quorum may have been raised since.
	kept, err := Policy{Key: p.Key}.Open(earlier)
	if err != nil {
		return o, fmt.Errorf("the checkpoint of the last call: %w", err)
	}
	o.Earlier = kept.Checkpoint
	return o, l.Compare(ctx, o.Earlier, o.Checkpoint)
}

// readEdge reads the last leaf, and with it the tiles at the edge of the tree.
func (l Log) readEdge(ctx context.Context, c Checkpoint) error {
	_, err := l.Hashes(ctx, c).ReadHashes([]int64{tlog.StoredHashIndex(0, c.Size-1)})
	if err != nil {
		return tileError(err)
	}
	return nil
}
