package inflight

// Room is how much more may be pulled.
type Room struct {
	Tasks int
	Bytes int // limit on the messages' bytes if Tasks exceeds the free slots, otherwise 0: no limit
}

// Wanted returns how many further tasks may be in flight, and the limit for all of them.
func (s *Set[A]) Wanted() (n, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit = s.limit()
	n = limit - (len(s.tasks) - s.done)
	if s.bytes > AheadBytes {
		n = min(n, s.slots-len(s.tasks))
	}
	return max(0, n), limit
}

// RoomForArgs returns how many bytes of args may be read ahead of the slots.
func (s *Set[A]) RoomForArgs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, AheadBytes-s.bytes)
}

// SetSlots changes the number of the kind's slots. Tasks in flight stay.
func (s *Set[A]) SetSlots(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = n
	s.wake()
}

// IsFull reports whether there is no room.
func (s *Set[A]) IsFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room().Tasks == 0
}

// RoomFor returns how much one of so many pairs of consumers may pull at a time. Requests of idle shards stay open,
// and together they must not bring much more than there is room for. If there is no room, c, which has a buffer of
// one, receives a token as soon as there is.
func (s *Set[A]) RoomFor(c chan struct{}, pairs int) Room {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.room()
	if r.Tasks == 0 {
		s.waiting[c] = struct{}{}
		return r
	}
	r.Tasks = min(r.Tasks, (s.limit()+pairs-1)/pairs)
	return r
}

// StopWaiting undoes RoomFor.
func (s *Set[A]) StopWaiting(c chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, c)
}

// limit returns the maximum number of tasks in flight. s.mu is held.
func (s *Set[A]) limit() int { return s.slots + s.pace.ahead(s.slots*s.width) }

// room returns the room of all consumers. It is empty unless a slot is free or enough tasks fit to be worth a
// request. s.mu is held.
func (s *Set[A]) room() Room {
	limit := s.limit()
	have := len(s.tasks) - s.done
	free := s.slots - have
	bytes := AheadBytes - s.bytes
	switch n := limit - have; {
	case n <= 0, free <= 0 && n < (limit+3)/4:
		return Room{}
	case n > free && bytes > int(s.nc.MaxPayload())+headBytes:
		return Room{Tasks: n, Bytes: bytes}
	case bytes <= 0: // tasks that wait for the record of their outcome take memory, too
		return Room{Tasks: max(0, min(free, s.slots-len(s.tasks)))}
	case free > 0:
		return Room{Tasks: free}
	}
	return Room{}
}

// wake sends a token to all channels that wait for room, if there is room. s.mu is held.
func (s *Set[A]) wake() {
	if len(s.waiting) == 0 || s.room().Tasks == 0 {
		return
	}
	for c := range s.waiting {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	clear(s.waiting)
}
