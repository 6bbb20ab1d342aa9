package seal

import (
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

var (
	// ErrMismatch means that an event differs from the event at its leaf of a checkpoint's tree, or that a proof
	// belongs to another tree.
	ErrMismatch = errors.New("the event is not in the tree of the checkpoint")
	// ErrNotSealed means that the tree lacks leaves of a checkpoint: the checkpoint is newer than the ledger.
	ErrNotSealed = errors.New("the ledger has fewer sealed events than the checkpoint")
	// ErrSignature means that a checkpoint lacks a signature that a [Policy] requires.
	ErrSignature = errors.New("the checkpoint is not signed as required")
	// ErrInconsistent means that a published tree does not contain an earlier one, or that its tiles were changed.
	ErrInconsistent = errors.New("the log does not contain the tree of the earlier checkpoint")
)

var (
	errNotErased = errors.New("the seal contains a digest instead of a salt, as after erasure, but the event has text")
	errType      = errors.New("the type contains a line break")
	errSalt      = errors.New("the salt must have 16 bytes, or the digest 32")
)

// explain is [pgerr.Explain]. A value that no column can contain is a [*ledger.CorruptError].
func explain(op string, err error) error {
	var scan pgx.ScanArgError
	if errors.As(err, &scan) {
		err = &ledger.CorruptError{What: "row", Err: err}
	}
	return pgerr.Explain(op, err)
}
