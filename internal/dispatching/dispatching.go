// Package dispatching has the switch between the two ways in which workers get tasks, while both exist: by messages of
// the stream, or by the dispatcher.
package dispatching

import "os"

const variable = "TASKLEDGER_DISPATCHER"

// IsOn reports whether the dispatcher gives tasks to workers.
func IsOn() bool { return os.Getenv(variable) == "on" || IsByNATS() }

// IsByNATS reports whether the dispatcher and the workers of one process talk over NATS too, for tests of that way.
func IsByNATS() bool { return os.Getenv(variable) == "nats" }
