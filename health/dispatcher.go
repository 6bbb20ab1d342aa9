package health

import (
	"context"

	"github.com/taskledger/taskledger/workers/dispatcher"
)

func checkDispatcher(ctx context.Context, c Config, r *Report) (err error) {
	if r.Dispatcher, err = dispatcher.ReadStatus(ctx, c.DB); err == nil && !r.Dispatcher.Alive {
		r.add(Condition{Name: DispatcherStopped, Since: r.Dispatcher.Since, Text: "no dispatcher is running"})
	}
	return err
}
