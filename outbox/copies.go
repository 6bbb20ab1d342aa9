package outbox

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/taskledger/taskledger/internal/copies"
)

// CopyError is the error of a relay while another copy of the database works on the same NATS.
type CopyError struct {
	Holder string // of the lease of that copy's relay or dispatcher
}

func (e *CopyError) Error() string {
	return fmt.Sprintf("this database is a copy of another database, whose relay or dispatcher %s works on the same "+
		"NATS: if this database replaces it, end that one's services; otherwise connect this one to another NATS "+
		"account, then: taskledger rebase --new-installation --yes", e.Holder)
}

// confirmation records whether this relay has made sure that no other copy of the database works. The first session in
// a run asks before it touches the stream, see package internal/copies. If nothing answers although both work, the
// first message of one is foreign to the other.
type confirmation struct {
	mine atomic.Pointer[copies.Claim] // in the run in which this relay works; nil before it does
}

// confirm makes sure that no other copy works. It asks once after each start of the server, and before it uses a stream
// with messages that the mark does not name.
func (c *confirmation) confirm(ctx context.Context, s *session, installation, run string) error {
	mine := copies.Claim{Installation: installation, Run: run, Holder: s.relay.lease.holder}
	isUnknown := s.mark.Created != createdAt(s.info) && s.info.State.LastSeq > 0
	isConfirmed := s.mark.Server == run
	if earlier := c.mine.Load(); earlier != nil && earlier.Run == run { // by a session that could not write the mark
		isConfirmed = true
	}
	if !isConfirmed || isUnknown {
		c.mine.Store(nil)
		other, err := copies.Ask(ctx, s.relay.config.NATS, mine)
		if err != nil {
			return err
		}
		if other != "" {
			return &CopyError{Holder: other}
		}
	}
	c.mine.Store(&mine)
	return nil
}

// answer answers the questions of other copies until ctx is done.
func (r *Relay) answer(ctx context.Context) error {
	a := copies.Answerer{
		NATS: r.config.NATS, DB: r.config.DB, Lease: "relay", Patience: r.config.LeaseTTL, Logger: r.config.Logger,
		Mine: r.copies.mine.Load,
	}
	return r.explain(a.Run(ctx))
}
