package inflight

// Wanted returns how many further tasks may be in flight, and the limit for all of them.
func (s *Set[A]) Wanted() (n, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted()
}

func (s *Set[A]) wanted() (n, limit int) {
	limit = s.slots + s.pace.ahead(s.slots*s.config.Width)
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
	s.noteRoom()
}

func (s *Set[A]) noteRoom() {
	if s.config.HasRoom != nil {
		s.config.HasRoom(s.wanted())
	}
}
