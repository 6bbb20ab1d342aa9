package feed

import (
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/ledger"
)

// Errors that end a feed; compare with errors.Is.
var (
	// ErrSuperseded is returned if another feed of the same reader has advanced the cursor. The superseded feed must
	// stop.
	ErrSuperseded = errors.New("superseded: another reader has advanced the cursor")
	// ErrCrashed is returned if the database crashed or failed over after the feed was opened. The database
	// may assign transaction ids and positions again that the feed has passed. Open the feed again: it
	// continues at its cursor.
	ErrCrashed = errors.New("the database crashed since the feed was opened: open the feed again")
	// ErrNotPrimary is returned if the database is a standby. The snapshots of a standby do not list running
	// transactions.
	ErrNotPrimary = errors.New("the database is a standby: connect to the primary")
)

// OriginError reports a cursor or an event that was written in another cluster or database. Its transaction ids have
// no meaning in this one. The cause is a restored dump, a copied table or logical replication.
type OriginError struct {
	Reader      string
	Found, Want string // the origin of the cursor row, "" for an event, and of this database

	// Position is the position of such an event, 0 if unknown. The cursor is valid or missing.
	Position ledger.Position
	// Ahead is the position up to which the cursor has read, if that position was never drawn: the events come from an
	// older backup than the cursor. Otherwise 0.
	Ahead ledger.Position
}

// IsRefusal reports whether an error means that a reader must not continue before an operator has acted: an
// [*OriginError] or a [*SequenceError].
func IsRefusal(err error) bool {
	var origin *OriginError
	var sequence *SequenceError
	return errors.As(err, &origin) || errors.As(err, &sequence)
}

// SequenceError reports that sessions draw several positions at once, or positions that events already use. In the
// first case the feed would deliver late the events whose positions were drawn before their transactions began; in the
// second case enqueues fail.
type SequenceError struct {
	Cache  int64           // how many positions a session draws at once
	Behind ledger.Position // the newest event's position if the sequence is behind it, else 0
}

func (e *SequenceError) Error() string {
	if e.Cache == 1 {
		return fmt.Sprintf("the sequence taskledger.event_position_seq is behind the newest event, which has position "+
			"%d, so enqueues fail: taskledger rebase --yes", e.Behind)
	}
	return fmt.Sprintf("the sequence taskledger.event_position_seq has cache %d, and must have 1: "+
		"alter sequence taskledger.event_position_seq cache 1; then end the sessions that have inserted", e.Cache)
}

// rebaseCure is the cure of an [*OriginError].
const rebaseCure = "after a restore: taskledger rebase --yes; if the original goes on, connect this database to " +
	"another NATS account, then: taskledger rebase --yes --new-installation"

func (e *OriginError) Error() string {
	if e.Ahead > 0 {
		return fmt.Sprintf("cursor %q has read up to position %d, which is ahead of the events: they are of an older "+
			"backup; %s", e.Reader, e.Ahead, rebaseCure)
	}
	if e.Found == "" {
		return fmt.Sprintf("cursor %q cannot pass events that come from another database (the first found is at "+
			"position %d, this is %s); %s", e.Reader, e.Position, e.Want, rebaseCure)
	}
	return fmt.Sprintf("cursor %q comes from another database (origin %s, this is %s); %s", e.Reader, e.Found, e.Want,
		rebaseCure)
}
