package periodic

import "errors"

// ErrUnknownSchedule is the error for a name without a schedule.
var ErrUnknownSchedule = errors.New("unknown schedule")

// errConnectionEnded marks errors that do not come from the schedule.
var errConnectionEnded = errors.New("the connection has ended")
