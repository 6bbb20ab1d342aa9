// Package only restricts a dispatcher to one task, for package workertest.
package only

import "github.com/taskledger/taskledger/ledger"

// Task is the only task that a dispatcher gives out. It is constant.
type Task struct{ Key ledger.Key }

// Has reports whether a dispatcher may give out a task. A nil Task has all.
func (t *Task) Has(k ledger.Key) bool { return t == nil || t.Key == k }

// Restrict restricts a *dispatcher.Dispatcher to a task, before it runs. Package dispatcher sets it, since it imports
// this package.
var Restrict func(dispatcher any, t *Task)
