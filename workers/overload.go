package workers

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/kind_shed.sql
var kindShedSQL string

// readLimits finds out of which kinds the oldest waiting tasks are discarded, or soon may be
// ([ledger.DiscardOldest]). Their attempts begin with their start on record, whatever it costs: the
// oldest are those in the hands of workers, and else what has begun would be discarded again and
// again, and nothing would ever be done.
func (p *Pool) readLimits(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	var names []string
	rows, err := p.config.DB.Query(ctx, kindShedSQL)
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		if ctx.Err() == nil {
			p.runner.Warn(p.config.Logger, "cannot see which kinds are overloaded", "error", err)
		}
		return
	}
	shed := make(map[ledger.Kind]bool, len(names))
	for _, name := range names {
		shed[ledger.Kind(name)] = true
	}
	for _, k := range p.registered() {
		k.isShed.Store(shed[k.Name])
	}
}
