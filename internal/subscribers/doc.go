// Package subscribers lists the subscribers of the feed and administers them, whichever language they are written in:
// they are moved, paused, given to another login and removed, their parked events are retried or discarded, and the
// rebuild or the verification of their tables is requested. Package outbox runs them.
package subscribers

import (
	"errors"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/operation"
)

// DB is a pool, or a connection without an open transaction.
type DB = operation.DB

// ErrUnknown is returned for a name without a subscriber.
var ErrUnknown = errors.New("there is no such subscriber")

// ErrBusy is returned by functions that move, pause, give or remove a subscriber if its handler has been in a
// transaction for 5 s: they wait for its end.
var ErrBusy = feed.ErrSubscriberBusy
