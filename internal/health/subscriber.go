package health

import (
	"context"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/subscribers"
)

// maxSubscribers is the greatest number of subscribers in a report.
const maxSubscribers = 100

func checkSubscribers(ctx context.Context, c Config, r *Report) error {
	furthest, total, err := feed.SubscribersFurthest(ctx, c.DB, maxSubscribers)
	if err != nil {
		return err
	}
	r.SubscribersTotal = total
	for _, s := range furthest {
		r.Subscribers = append(r.Subscribers, subscribers.Subscriber(s))
	}
	var last subscribers.Subscriber // the least far behind
	for _, s := range r.Subscribers {
		if last.Name == "" || s.IsLocal && (!last.IsLocal || s.Position > last.Position) {
			last = s
		}
		age := time.Duration(s.Age) * time.Millisecond
		if !isExceeded(age, c.Thresholds[SubscriberBehind]) || r.isBuilt(s.Name) {
			continue
		}
		events := printable.Count(s.Lag)
		if s.IsCapped {
			events = "more than " + events
		}
		state, cure := "", "" // of the definition
		if s.IsPaused {
			state, cure = " and is paused", "resume it: taskledger resume subscriber "+printable.Text(s.Name)
		}
		r.add(Condition{
			Name: SubscriberBehind, About: s.Name, Since: s.OldestAt, Threshold: c.Thresholds[SubscriberBehind],
			Cure: cure,
			Text: fmt.Sprintf("subscriber %s is %s behind%s; events it has not processed: %s; the threshold is %s",
				s.Name, printable.Age(age), state, events, printable.Duration(c.Thresholds[SubscriberBehind])),
		})
	}
	isLate := isExceeded(time.Duration(last.Age)*time.Millisecond, c.Thresholds[SubscriberBehind])
	if others := r.SubscribersTotal - len(r.Subscribers); others > 0 && (isLate || !last.IsLocal) {
		r.add(Condition{
			Name: SubscriberBehind, Threshold: c.Thresholds[SubscriberBehind],
			Text: fmt.Sprintf("other subscribers that may also be late: %s; "+
				"to list them: taskledger show subscribers", printable.Count(int64(others))),
		})
	}
	return nil
}

// isBuilt reports whether new tables of a subscriber are being built.
func (r *Report) isBuilt(subscriber string) bool {
	for _, s := range r.SubscriberStates {
		if s.Name == subscriber {
			return isBuilt(s.Work, r.At)
		}
	}
	return false
}
