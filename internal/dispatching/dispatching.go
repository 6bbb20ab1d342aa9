// Package dispatching has the switch between the two ways in which workers get tasks, while both exist: by messages of
// the stream, or by the dispatcher.
package dispatching

import "os"

// IsOn reports whether the dispatcher gives tasks to workers.
func IsOn() bool { return os.Getenv("TASKLEDGER_DISPATCHER") == "on" }
