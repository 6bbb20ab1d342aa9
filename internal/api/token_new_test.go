package api_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/taskledger/taskledger/internal/api"
)

// A token is valid from the moment it is made, even if the API has just read the tokens for another caller.
func TestTokenThatIsNew(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, name := range []api.Role{"till-1", "till-2"} {
		_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: string(name), Role: api.Viewer})
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[name] = secret
		if a := s.call(name, "GET", "/version", ""); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// Many requests with unknown tokens are refused, and do not delay others.
func TestManyUnknownTokens(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.tokens["nobody"] = "tlk_nobody_nobody"
	var all sync.WaitGroup
	for range 150 {
		all.Go(func() {
			s.wantProblem(s.call("nobody", "GET", "/version", ""), http.StatusUnauthorized, "unauthenticated")
		})
	}
	if a := s.call(api.Viewer, "GET", "/version", ""); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	all.Wait()
}
