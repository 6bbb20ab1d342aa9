package api

import "time"

// Operations returns the patterns of all calls, with the role that each needs.
func Operations() map[string]Role {
	all := map[string]Role{}
	for _, o := range operations {
		all[o.method+" "+o.path] = o.least
	}
	return all
}

// Problems returns the codes of all problems, with their status.
func Problems() map[string]int {
	all := map[string]int{}
	for c, p := range problems {
		all[string(c)] = p.status
	}
	return all
}

// StopClock stops the clock by which tokens age and rates are measured.
func (h *Handler) StopClock() {
	now := time.Now()
	h.registry.mu.Lock()
	defer h.registry.mu.Unlock()
	h.registry.now = func() time.Time { return now }
}

// Waiting returns the numbers of requests that wait or stream, and of users of the hub.
func (h *Handler) Waiting() (requests, users int) {
	h.hub.mu.Lock()
	defer h.hub.mu.Unlock()
	return h.waiting.number(), h.hub.users
}

// CheckProtocol checks a client's version of the work protocol against a server's.
func CheckProtocol(server, version string) error { return checkProtocol(server, version) }
