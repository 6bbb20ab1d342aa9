package health

import (
	"context"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/projector"
)

// replaySilence is the time after which a replay counts as stopped: its rate is limited, and it shows no progress in
// the database.
const replaySilence = time.Hour

// checkOperations examines the records of acts that have not ended.
func checkOperations(ctx context.Context, c Config, r *Report) error {
	projections, err := projector.ReadProjections(ctx, c.DB)
	if err != nil {
		return err
	}
	for _, action := range []string{operation.RebuildProjection, operation.RebuildStream, operation.ReplayEvents} {
		open, err := operation.ReadOpen(ctx, c.DB, action)
		if err != nil {
			return err
		}
		silence := buildSilence
		if action == operation.ReplayEvents {
			silence = replaySilence
		}
		for _, o := range open {
			about := ""
			if name := o.Detail["projection"]; name != "" {
				about = " of " + name
				if isBuiltNow(projections, name, r.At) {
					continue
				}
			}
			if r.At.Sub(o.Begun) < silence {
				continue
			}
			text := fmt.Sprintf("%s%s, by %s, has not ended: %s", action, about, o.Actor, o.Key.BizID)
			r.add(Condition{
				Name: OperationOpen, About: action, Since: o.Begun, Text: printable.Short(text, maxReason),
			})
			break // one for each action
		}
	}
	return nil
}

// isBuiltNow reports whether new tables of the projection of a name are being built.
func isBuiltNow(all []projector.Registered, name string, now time.Time) bool {
	for _, p := range all {
		if p.Name == name {
			return isBuilt(p, now)
		}
	}
	return false
}
