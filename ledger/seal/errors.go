package seal

import "errors"

var (
	// ErrMismatch means that an event is not the one at its leaf of a checkpoint's tree, or that a proof is of another
	// tree.
	ErrMismatch = errors.New("the event is not in the tree of the checkpoint")
	// ErrNotSealed means that the tree does not have the leaves of a checkpoint: it is newer than the ledger.
	ErrNotSealed = errors.New("the ledger has fewer sealed events than the checkpoint")
)

var (
	errNotErased = errors.New("the seal has a digest in place of the salt, as after erasure, and the event has a text")
	errSalt      = errors.New("the salt must have 16 bytes, or the digest 32")
)
