package alarm

import "context"

// Pass is one poll of a watcher.
func (w *Watcher) Pass(ctx context.Context) error { return w.pass(ctx) }

// Send delivers a message without a task.
func (r Receiver) Send(ctx context.Context, m Message) error { return r.send(ctx, m) }

// Statements are all statements of this package by file name.
var Statements = map[string]string{
	"now": nowSQL, "available": availableSQL, "waiting": waitingSQL, "waiting_listed": waitingListedSQL,
	"newest": newestSQL, "list": listSQL, "lock": lockSQL, "receiver": receiverSQL,
}
