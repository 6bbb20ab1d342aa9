package api

import (
	"sync"
	"time"
)

// places limits the requests that wait and the streams. A named caller may use at most half of the places, and leaves
// the others to other callers.
type places struct {
	most int

	mu       sync.Mutex
	taken    int
	byCaller map[string]int
}

func newPlaces(most int) *places { return &places{most: most, byCaller: map[string]int{}} }

// enter takes a place for a request that waits. It returns a function that gives it back.
func (p *places) enter(c *caller) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := c.id + " " + c.name
	switch {
	case p.taken >= p.most:
		return nil, retryIn(problem(codeWaiting, "the greatest number of requests wait"), time.Second)
	case c.name != anonymous && p.byCaller[key] >= (p.most+1)/2:
		detail := "the greatest number of requests of " + c.name + " wait"
		return nil, retryIn(problem(codeWaiting, detail), time.Second)
	}
	p.taken++
	p.byCaller[key]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		if p.byCaller[key]--; p.byCaller[key] == 0 {
			delete(p.byCaller, key)
		}
	}, nil
}

// number returns the number of places that are taken.
func (p *places) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
