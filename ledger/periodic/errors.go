package periodic

import "errors"

// ErrUnknownSchedule: no schedule has this name.
var ErrUnknownSchedule = errors.New("unknown schedule")

// errConnectionEnded says that a schedule is not at fault.
var errConnectionEnded = errors.New("the connection has ended")
