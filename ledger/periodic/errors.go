package periodic

import "errors"

// ErrUnknownSchedule: no schedule has this name.
var ErrUnknownSchedule = errors.New("unknown schedule")

// errConnectionEnded marks errors that do not come from the schedule.
var errConnectionEnded = errors.New("the connection has ended")
