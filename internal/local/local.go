// Package local passes messages between the dispatcher and the workers of one process, without NATS and without seals.
// Each receiver's name is unique: a worker's is its session, a dispatcher's its public key.
package local

import (
	"context"
	"math"
	"sync"

	"github.com/taskledger/taskledger/internal/dispatch"
)

var (
	// Dispatchers are the dispatchers of this process by public key.
	Dispatchers Boxes[dispatch.Report]
	// Workers are the workers of this process by session.
	Workers Boxes[dispatch.Offer]
)

// Boxes are the receivers of a process by name. The zero value is ready for use. It is safe for concurrent use.
type Boxes[M any] struct {
	mu     sync.RWMutex
	byName map[string]*Box[M]
}

// Open returns a new box. Until remove is called, messages to its name are put into it.
func (b *Boxes[M]) Open(name string) (box *Box[M], remove func()) {
	box = NewBox[M]()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byName == nil {
		b.byName = map[string]*Box[M]{}
	}
	b.byName[name] = box
	return box, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.byName, name)
	}
}

// Put passes a message to the box with a name. It reports false if this process has no such box. It never waits.
func (b *Boxes[M]) Put(name string, m M) bool {
	b.mu.RLock()
	box := b.byName[name]
	b.mu.RUnlock()
	if box == nil {
		return false
	}
	box.PutBelow(math.MaxInt, m)
	return true
}

// Box is the queue of one receiver. It has no limit of its own; the protocol limits the messages on their way.
type Box[M any] struct {
	due     chan struct{}
	mu      sync.Mutex
	waiting []M
}

// NewBox returns an empty box without a name.
func NewBox[M any]() *Box[M] { return &Box[M]{due: make(chan struct{}, 1)} }

// PutBelow puts a message into the box, unless at least most wait in it. It never waits.
func (b *Box[M]) PutBelow(most int, m M) {
	b.mu.Lock()
	if len(b.waiting) < most {
		b.waiting = append(b.waiting, m)
	}
	b.mu.Unlock()
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// Receive calls f with each message, one after the other and in the order in which they were put, until ctx is done.
func (b *Box[M]) Receive(ctx context.Context, f func(M)) {
	for {
		select {
		case <-b.due:
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		all := b.waiting
		b.waiting = nil
		b.mu.Unlock()
		for _, m := range all {
			f(m)
		}
	}
}
