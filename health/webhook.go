package health

import (
	"context"
	"fmt"
	"math"

	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/webhook"
)

// maxReceivers is the greatest number of receivers of webhooks with a condition of their own.
const maxReceivers = 100

func checkWebhooks(ctx context.Context, c Config, r *Report) error {
	if c.Thresholds[WebhookStopped] < 0 {
		return nil
	}
	stopped, err := webhook.ReadStopped(ctx, c.DB, c.Thresholds[WebhookStopped], math.MaxInt)
	for i, s := range stopped {
		if i == maxReceivers {
			r.add(Condition{
				Name: WebhookStopped, Threshold: c.Thresholds[WebhookStopped],
				Text: fmt.Sprintf("other receivers that get no events: %s; compare the receivers with: "+
					"taskledger show subscribers", printable.Count(int64(len(stopped)-maxReceivers))),
			})
			break
		}
		held := Condition{
			Name: WebhookStopped, About: s.Receiver, Since: s.Since, Threshold: c.Thresholds[WebhookStopped],
		}
		name, subscriber := s.Receiver, webhook.Subscriber(s.Receiver)
		switch s.Reason {
		case webhook.Gone:
			held.Text = fmt.Sprintf("receiver %s has answered 410 Gone; its deliveries wait", name)
			held.Cure = fmt.Sprintf("when it answers again: taskledger resume kind %s", webhook.Kind(name))
		case webhook.Deleted:
			held.Text = fmt.Sprintf("receiver %s gets no events: its subscriber was deleted while it works", name)
			held.Cure = fmt.Sprintf("take it out of the file of taskledger serve webhooks, or: "+
				"taskledger seek subscriber %s --now", subscriber)
		case webhook.Unserved:
			held.Text = fmt.Sprintf("receiver %s gets no events: no process has it", name)
			held.Cure = fmt.Sprintf("start: taskledger serve webhooks; if it is not needed: "+
				"taskledger delete subscriber %s", subscriber)
		case webhook.Stuck:
			held.Text = fmt.Sprintf("receiver %s gets no events: its subscriber does not continue", name)
			held.Cure = "read the log of taskledger serve webhooks"
		}
		r.add(held)
	}
	return err
}
