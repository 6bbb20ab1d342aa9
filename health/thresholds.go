package health

import "time"

const (
	// DefaultThreshold is the default of all [Thresholds] except RelayLag and SubscriberLag. The successor of a killed
	// process takes over in less time.
	DefaultThreshold = 30 * time.Second
	// DefaultRelayLag is the default of Thresholds.RelayLag. The successor of a killed relay takes over sooner: within
	// two seconds, including the time until a status is read.
	DefaultRelayLag = 1250 * time.Millisecond
	// DefaultAlarmThreshold is the default of the thresholds of alarms (package alarm). An operator may act on a
	// condition that a status shows; an alarm asks one to.
	DefaultAlarmThreshold = 5 * time.Minute
	// DefaultSubscriberLag is the default of Thresholds.SubscriberLag. A subscriber may be paused for a time.
	DefaultSubscriberLag = time.Hour
)

// Thresholds are the durations after which a delay is a condition. Zero: the default. Negative: never.
type Thresholds struct {
	RelayLag      time.Duration // age of the oldest event that is not published
	ProjectionLag time.Duration // age of the oldest event that is not projected
	TimersLate    time.Duration // how long a timer has been due
	ScheduleLate  time.Duration // how long a firing has been due
	KindUnhandled time.Duration // how long a task has been available for which no live worker exists
	TasksUnbegun  time.Duration // how long a task has been available that no live worker of its kind has begun
	SubscriberLag time.Duration // age of the oldest event that a subscriber of the feed has not passed
	// WebhookStopped is the age of the oldest event that a receiver of webhooks has not passed, while it passes none.
	WebhookStopped time.Duration
}

func (t Thresholds) withDefaults() Thresholds {
	if t.RelayLag == 0 {
		t.RelayLag = DefaultRelayLag
	}
	if t.SubscriberLag == 0 {
		t.SubscriberLag = DefaultSubscriberLag
	}
	for _, field := range []*time.Duration{
		&t.ProjectionLag, &t.TimersLate, &t.ScheduleLate, &t.KindUnhandled, &t.TasksUnbegun, &t.WebhookStopped,
	} {
		if *field == 0 {
			*field = DefaultThreshold
		}
	}
	return t
}

// isExceeded reports whether a duration exceeds a threshold whose default is set.
func isExceeded(d, threshold time.Duration) bool { return threshold >= 0 && d > threshold }
