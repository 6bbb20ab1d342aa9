package dispatcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/taskledger/taskledger/internal/copies"
	"github.com/taskledger/taskledger/internal/lease"
)

// errRelayBegins: the relay makes sure now, and reads the stream for it.
var errRelayBegins = errors.New("the relay has not yet checked that no copy of the database is working")

// confirm returns the run of the server, after making sure that no other copy of the database works in it. The first
// dispatcher of a run asks on NATS, see package internal/copies. confirm records the reason if the dispatcher must not
// begin.
func (d *Dispatcher) confirm(ctx context.Context, holder string) (lease.Run, error) {
	run, err := lease.ReadRun(ctx, d.config.DB)
	if err != nil || run.IsConfirmed {
		return run, err
	}
	if run.RelayBegins {
		return run, errRelayBegins
	}
	other, err := copies.Ask(ctx, d.config.NATS, claimOf(run, holder))
	switch {
	case err != nil:
	case other != "":
		err = fmt.Errorf("this database is a copy of another database, whose relay or dispatcher %s works on the same "+
			"NATS: if this database replaces it, end that one's services, then wait for a minute; otherwise connect "+
			"this one to another NATS account, then: taskledger rebase --new-installation --yes", other)
	case run.RelayRefuses:
		err = errors.New("the relay refuses to continue, so this database may be a copy: " +
			"the cure is the same as for relay_refused")
	case run.HasAnswered: // it may only be restarting; its reason stays recorded
		return run, errors.New("a copy of this database has worked on the same NATS within the last minute")
	default:
		return run, nil
	}
	return run, errors.Join(err, lease.RefuseDispatcher(ctx, d.config.DB, err.Error(), other != ""))
}

func claimOf(r lease.Run, holder string) copies.Claim {
	return copies.Claim{Installation: r.Installation, Run: r.Name, Holder: holder}
}

// answer answers the questions of other copies until ctx is done.
func (o *office) answer(ctx context.Context) error {
	mine := claimOf(o.run, o.claim.Holder)
	return copies.Answerer{
		NATS: o.config.NATS, DB: o.config.DB, Lease: "dispatcher", Patience: term, Logger: o.config.Logger,
		Mine: func() *copies.Claim { return &mine },
	}.Run(ctx)
}
