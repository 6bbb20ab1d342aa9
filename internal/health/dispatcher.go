package health

import (
	"context"

	"github.com/taskledger/taskledger/internal/dispatcher"
)

func checkDispatcher(ctx context.Context, c Config, r *Report) (err error) {
	r.Dispatcher, err = dispatcher.ReadStatus(ctx, c.DB)
	if err != nil || r.Dispatcher.Alive {
		return err
	}
	stopped := Condition{Name: DispatcherStopped, Since: r.Dispatcher.Since, Text: "no dispatcher is running"}
	if note := r.Dispatcher.Note; note != "" {
		stopped.Text = "no dispatcher is working: " + note
		stopped.Cure = "follow the text, with the steps in docs/recovery.md"
	}
	r.add(stopped)
	return nil
}
