package api

import (
	"container/list"
	"sync"
)

// sendBuffer is the data that clients have not read yet. Above the limit, the clients that have read for the longest
// time are disconnected, so that slow clients do not affect the others.
type sendBuffer struct {
	limit int // bytes

	mu    sync.Mutex
	bytes int
	open  list.List // of *parcel, the oldest first
}

// parcel is the data that one client reads.
type parcel struct {
	bytes int
	cut   func()
}

// begin adds a parcel. Above the limit, it calls cut of the oldest parcels, but never of the new one. Call end when the
// parcel was sent.
func (s *sendBuffer) begin(bytes int, cut func()) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.open.PushBack(&parcel{bytes, cut})
	s.bytes += bytes
	for s.bytes > s.limit && s.open.Front() != e {
		p := s.remove(s.open.Front())
		p.cut()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove(e)
	}
}

// remove removes a parcel, even if it was removed before. The caller holds mu.
func (s *sendBuffer) remove(e *list.Element) *parcel {
	p := e.Value.(*parcel)
	s.bytes -= p.bytes
	p.bytes = 0
	s.open.Remove(e)
	return p
}
