package inflight

import "time"

// SetAckDelay replaces how long an acknowledgement waits for others.
func (s *Set[A]) SetAckDelay(d time.Duration) { s.acks.delay = d }
