package api_test

import (
	"net/http"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
)

// The error of each read of an unknown task is that the task does not exist.
func TestUnknownTask(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, path := range []string{"", "/events"} {
		r := s.call(api.Viewer, "GET", "/v1/tasks/coupon.send/A-2"+path, "")
		p := s.wantProblem(r, http.StatusNotFound, "unknown_task")
		if p.Detail != "coupon.send/A-2: the task does not exist" {
			t.Errorf("%s: %q", path, p.Detail)
		}
	}
}
