package feed

import (
	"errors"
	"fmt"
)

// Errors that end a feed; compare with errors.Is.
var (
	// ErrSuperseded is returned if another feed of the same reader has advanced the cursor. This one must
	// stop.
	ErrSuperseded = errors.New("superseded: another reader has advanced the cursor")
	// ErrCrashed is returned if the database crashed or failed over after the feed was opened. The database
	// may assign transaction ids and positions again that the feed has passed. Open the feed again: it
	// continues at its cursor.
	ErrCrashed = errors.New("the database crashed since the feed was opened: open the feed anew")
	// ErrNotPrimary is returned if the database is a standby. The snapshots of a standby do not list running
	// transactions.
	ErrNotPrimary = errors.New("the database is a standby: connect to the primary")
)

// OriginError reports a cursor that was written in another cluster or database. The transaction ids
// in it have no meaning in this one. The cause is a restored dump or a copied table.
type OriginError struct {
	Reader      string
	Found, Want string // the origin of the cursor row, and of this database
}

func (e *OriginError) Error() string {
	return fmt.Sprintf("cursor %q comes from another database (origin %s, this is %s); after a restore: "+
		"taskledger rebase",
		e.Reader, e.Found, e.Want)
}
