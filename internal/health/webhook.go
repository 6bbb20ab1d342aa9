package health

import (
	"context"
	"fmt"
	"math"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/webhooks"
)

// maxReceivers is the greatest number of receivers of webhooks with a condition of their own.
const maxReceivers = 100

func checkWebhooks(ctx context.Context, c Config, r *Report) error {
	if c.Thresholds[WebhookStopped] < 0 {
		return nil
	}
	stopped, err := webhooks.ReadStopped(ctx, c.DB, c.Thresholds[WebhookStopped], math.MaxInt)
	for i, s := range stopped {
		if i == maxReceivers {
			r.add(Condition{
				Name: WebhookStopped, Threshold: c.Thresholds[WebhookStopped],
				Text: fmt.Sprintf("other receivers without events: %s; compare your receivers with: "+
					"taskledger show subscribers", printable.Count(int64(len(stopped)-maxReceivers))),
			})
			break
		}
		held := Condition{
			Name: WebhookStopped, About: s.Receiver, Since: s.Since, Threshold: c.Thresholds[WebhookStopped],
		}
		name, subscriber := s.Receiver, webhooks.Subscriber(s.Receiver)
		switch s.Reason {
		case webhooks.Gone:
			held.Text = fmt.Sprintf("receiver %s answered 410 Gone; its deliveries are waiting", name)
			held.Cure = fmt.Sprintf("when it is back: taskledger resume kind %s", webhooks.Kind(name))
		case webhooks.Deleted:
			held.Text = fmt.Sprintf("receiver %s gets no events: its subscriber was deleted", name)
			held.Cure = fmt.Sprintf("remove it from the file of taskledger serve webhooks, or: "+
				"taskledger seek subscriber %s --now", subscriber)
		case webhooks.Unserved:
			held.Text = fmt.Sprintf("receiver %s gets no events: no process serves it", name)
			held.Cure = fmt.Sprintf("start: taskledger serve webhooks; if it is no longer needed: "+
				"taskledger delete subscriber %s", subscriber)
		case webhooks.Stuck:
			held.Text = fmt.Sprintf("receiver %s gets no events: its subscriber has stopped", name)
			held.Cure = "read the log of taskledger serve webhooks"
		}
		r.add(held)
	}
	return err
}
