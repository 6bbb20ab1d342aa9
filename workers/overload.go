package workers

import (
	"context"
	_ "embed"
)

//go:embed sql/kind_shed.sql
var kindShedSQL string

// updateOverloads reads the kinds whose oldest waiting tasks are discarded, or soon may be ([ledger.DiscardOldest]).
// Their attempts record their start before the handler runs, at any cost. Workers have received the oldest waiting
// tasks: without a recorded start, running tasks would be discarded repeatedly, and none would ever succeed.
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
