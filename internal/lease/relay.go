package lease

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/bound.sql
	boundSQL string
	//go:embed sql/relay_take.sql
	relayTakeSQL string
	//go:embed sql/relay_look.sql
	relayLookSQL string
	//go:embed sql/relay_yield.sql
	relayYieldSQL string
	//go:embed sql/relay_off.sql
	relayOffSQL string
	//go:embed sql/relay_release.sql
	relayReleaseSQL string
)

// Note is why the holder of the relay's lease cannot work; the zero value if it can.
type Note struct {
	Text  string
	Cause string // a word for programs, or ""
}

// storable returns a note as a lease can store it. An error may contain any bytes, and the stack of a panic.
func storable(note string) string { return printable.Storable(note, 4<<10) }

// RelayClaim is a claim of the relay's lease.
type RelayClaim struct {
	Holder string
	For    time.Duration
	// Note replaces the note of the row; nil to keep it.
	Note *Note
	// Backend is the server process of the connection that the holder keeps open, as its client reports it; 0: none.
	// The row stores it only if the server reports the same number: a pooler gives clients another number.
	Backend uint32
	// Displaced is a holder whose lease counts as expired; "" for none.
	Displaced string
}

// TakeRelay takes or renews the relay's lease. It returns when the holder's term began, in microseconds since 1970: no
// other relay has held the lease since. It returns 0 if the lease belongs to another holder.
//
// If the database's clock was set back, TakeRelay first shortens every lease taken before that to one more term. It
// does so for workers' leases, too. Thus no lease outlives its holder by more than two terms, whatever the clock does.
func TakeRelay(ctx context.Context, db ledger.DB, c RelayClaim) (term int64, err error) {
	if _, err := db.Exec(ctx, boundSQL); err != nil {
		return 0, pgerr.Explain("shorten leases", err)
	}
	var text *string
	cause := ""
	if c.Note != nil {
		text, cause = new(storable(c.Note.Text)), c.Note.Cause
	}
	args := []any{c.Holder, c.For.Milliseconds(), text, int64(c.Backend), c.Displaced, cause}
	_, err = pgquery.Row(ctx, db, relayTakeSQL, args, &term)
	return term, pgerr.Explain("take the lease", err)
}

// RelayState is the state of the relay's lease, for a relay that stands by.
type RelayState struct {
	Holder  string
	Backend int64         // 0: unknown
	IsGone  bool          // the server process Backend has ended, and with it the holder's connection
	Blocked time.Duration // for how long this holder has had the note
}

// LookAtRelay returns the state of the relay's lease. Without a lease it is zero.
func LookAtRelay(ctx context.Context, db ledger.DB) (s RelayState, err error) {
	var blocked int64
	_, err = pgquery.Row(ctx, db, relayLookSQL, nil, &s.Holder, &s.Backend, &s.IsGone, &blocked)
	s.Blocked = time.Duration(blocked) * time.Millisecond
	return s, pgerr.Explain("look at the lease", err)
}

// YieldRelay lets another relay take the lease at once, and stores the reason in it. refused means that no relay
// continues before an operator acts.
func YieldRelay(ctx context.Context, db ledger.DB, holder, reason string, refused bool) error {
	_, err := db.Exec(ctx, relayYieldSQL, holder, storable(reason), strconv.FormatBool(refused))
	return pgerr.Explain("yield the lease", err)
}

// ReleaseRelay deletes the relay's lease.
func ReleaseRelay(ctx context.Context, db ledger.DB, holder string) error {
	_, err := db.Exec(ctx, relayReleaseSQL, holder)
	return pgerr.Explain("release the lease", err)
}

// TurnOffRelay records that no relay is expected to run, unless a relay is alive. A relay that starts later still takes
// the lease.
func TurnOffRelay(ctx context.Context, db ledger.DB, holder string) error {
	_, err := db.Exec(ctx, relayOffSQL, holder)
	return pgerr.Explain("turn off the stream", err)
}
