package periodic

import "errors"

// ErrUnknownSchedule is the error for a name that no schedule has.
var ErrUnknownSchedule = errors.New("unknown schedule")

// errConnectionEnded marks errors that do not come from the schedule.
var errConnectionEnded = errors.New("the connection has ended")
