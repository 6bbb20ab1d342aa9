package api_test

import (
	"net/http"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
)

// A client that opens more and more streams leaves places to other callers, and to itself when it ends some.
func TestOneCallerLeavesPlaces(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) { c.SetMaxWaiting(6) })
	var open []*reader
	for range 3 {
		open = append(open, s.stream("", ""))
	}
	stream := []string{"Accept", "text/event-stream"}
	a := s.call(api.Viewer, "GET", "/v1/events", "", stream...)
	s.wantProblem(a, http.StatusServiceUnavailable, "too_many_waiting")
	viewer := s.tokens[api.Viewer]
	s.tokens[api.Viewer] = s.tokens[api.Producer]
	for range 3 {
		s.stream("", "")
	}
	s.tokens[api.Viewer] = s.tokens[api.Admin]
	a = s.call(api.Viewer, "GET", "/v1/events", "", stream...)
	s.wantProblem(a, http.StatusServiceUnavailable, "too_many_waiting")
	s.tokens[api.Viewer] = viewer
	open[0].close()
	s.awaitWaiting(5)
	s.stream("", "")
}
