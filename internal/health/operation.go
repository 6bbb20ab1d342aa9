package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/operation"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/outbox"
)

// replaySilence is the time after which a replay counts as stopped: its rate is limited, and it shows no progress in
// the database.
const replaySilence = time.Hour

// checkOperations examines the records of acts that have not ended.
func checkOperations(ctx context.Context, c Config, r *Report) error {
	for _, action := range []string{
		operation.RebuildProjection, operation.RebuildSubscriber, operation.RebuildStream, operation.ReplayEvents,
	} {
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
			if name := cmp.Or(o.Detail["projection"], o.Detail["subscriber"]); name != "" {
				about = " of " + name
				work, err := readWork(ctx, c, o)
				if err != nil {
					return err
				}
				if isBuilt(work, r.At) {
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

// readWork returns the rebuild of the built-in projection or of a subscriber, whichever a record is about.
func readWork(ctx context.Context, c Config, o operation.Open) (*rebuild.Work, error) {
	if o.Detail["projection"] != "" {
		return projection.ReadWork(ctx, c.DB)
	}
	state, err := subscribers.ReadState(ctx, c.DB, o.Detail["subscriber"])
	if errors.Is(err, outbox.ErrUnknownSubscriber) {
		err = nil // it was removed
	}
	return state.Work, err
}
