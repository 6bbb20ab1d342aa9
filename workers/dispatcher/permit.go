package dispatcher

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/dispatch"
)

var (
	//go:embed sql/permits.sql
	permitsSQL string
	//go:embed sql/permits_remove.sql
	permitsRemoveSQL string
)

const (
	// tidyEvery is how often old permits are removed, at most tidyBatch in a statement.
	tidyEvery = 2 * time.Second
	tidyBatch = 10_000
	// rereadEvery is how often the permits in use are read again. The feed keeps them up to date, so this only finds
	// faults.
	rereadEvery = 10 * time.Second
)

// readPermits reads the permits in use that the state machine wants.
func (o *office) readPermits(ctx context.Context) error {
	o.mu.Lock()
	kinds := o.machine.PermitReads()
	o.mu.Unlock()
	if len(kinds) == 0 {
		return nil
	}
	permits, err := o.permits(ctx, kinds)
	o.mu.Lock()
	for _, kind := range kinds {
		o.machine.TakePermits(kind, permits[kind], err != nil)
	}
	o.match()
	o.mu.Unlock()
	if err != nil {
		return o.retry(ctx, err)
	}
	return nil
}

func (o *office) permits(ctx context.Context, kinds []ledger.Kind) (map[ledger.Kind][]dispatch.Permit, error) {
	var names pgarray.Builder
	for _, kind := range kinds {
		names.Add(string(kind))
	}
	rows, err := o.config.DB.Query(ctx, permitsSQL, names.String())
	if err != nil {
		return nil, pgerr.Explain("read permits", err)
	}
	permits := map[ledger.Kind][]dispatch.Permit{}
	var p dispatch.Permit
	columns := []any{(*string)(&p.Key.Kind), (*string)(&p.Key.BizID), (*int32)(&p.Version)}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if o.only.Has(p.Key) {
			permits[p.Key.Kind] = append(permits[p.Key.Kind], p)
		}
		return nil
	})
	return permits, pgerr.Explain("read permits", err)
}

// tidyPermits removes old permits, and has those in use read again, until ctx is done. While no kind has a limit, it
// executes no statement.
func (o *office) tidyPermits(ctx context.Context) error {
	for read := time.Now(); ; {
		if err := loop.Sleep(ctx, tidyEvery); err != nil {
			return err
		}
		o.mu.Lock()
		isDue := o.hasLimits
		if isDue && time.Since(read) >= rereadEvery {
			read = time.Now()
			o.machine.RereadPermits()
			o.match()
		}
		o.mu.Unlock()
		for removed := tidyBatch; isDue && removed >= tidyBatch; {
			err := o.config.DB.QueryRow(ctx, permitsRemoveSQL, tidyBatch).Scan(&removed)
			if err != nil && ctx.Err() == nil {
				o.limited.Warn(o.config.Logger, "cannot remove old permits", "error", err)
			}
			if err != nil {
				break
			}
		}
	}
}
