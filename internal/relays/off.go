package relays

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"

	leases "github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/off.sql
var offSQL string

// ErrStreamOff is returned by functions that need the stream if it is off, see [TurnOff].
var ErrStreamOff = errors.New("the stream is off: start taskledger serve without --stream off")

// causeOff is the cause of the note in the relay's lease while the stream is off.
const causeOff = "off"

// TurnOff records that the stream is off: no relay is expected to run, and status, conditions and metrics report no lag
// of it. It commits, and changes nothing while a relay is alive. A relay that starts turns the stream on, and publishes
// the events since then.
func TurnOff(ctx context.Context, db ledger.DB) error {
	return leases.TurnOffRelay(ctx, db, HostAndProcess())
}

// checkOn returns [ErrStreamOff] if the stream is off.
func checkOn(ctx context.Context, db ledger.DB) error {
	var isOff bool
	if _, err := pgquery.Row(ctx, db, offSQL, nil, &isOff); err != nil {
		return pgerr.Explain("read the relay's lease", err)
	}
	if isOff {
		return ErrStreamOff
	}
	return nil
}

// HostAndProcess returns a name of this process for operators.
func HostAndProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
