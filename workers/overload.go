package workers

import (
	"context"
	_ "embed"
)

//go:embed sql/kind_shed.sql
var kindShedSQL string

// updateOverloads reads of which kinds the oldest waiting tasks are discarded, or soon may be
// ([ledger.DiscardOldest]). Their attempts record their start before the handler runs, whatever that costs. The
// oldest waiting tasks are those that workers have received: without a recorded start, running tasks would be
// discarded again and again, and none would ever succeed.
func (p *Pool) updateOverloads(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.config.AckWait)
	defer cancel()
	overloaded, err := p.readKinds(ctx, kindShedSQL)
	if err != nil {
		if ctx.Err() == nil {
			p.runner.Warn(p.config.Logger, "cannot read which kinds are overloaded", "error", err)
		}
		return
	}
	for _, k := range p.registered() {
		k.isShed.Store(overloaded[k.Name])
	}
}
