package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// GET /v1/status has the members of taskledger status -o json, and GET /v1/conditions has its conditions.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "a.b", BizID: "1"}, `{}`)
	report, err := health.Read(t.Context(), health.Config{DB: s.db})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]json.RawMessage
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	status := s.call(api.Viewer, "GET", "/v1/status", "")
	got := decode[map[string]json.RawMessage](s, status, http.StatusOK)
	if have, members := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(have, members) {
		t.Errorf("members %v, want %v", have, members)
	}
	type held struct{ Name, Cure string }
	var degraded []held
	if err := json.Unmarshal(got["degraded"], &degraded); err != nil {
		t.Fatal(err)
	}
	conditions := decode[client.List[held]](s, s.call(api.Viewer, "GET", "/v1/conditions", ""), http.StatusOK)
	if !slices.Contains(conditions.Items, degraded[0]) || degraded[0].Cure == "" { // no service runs
		t.Errorf("the status has %v, and the conditions are %v", degraded, conditions.Items)
	}
	s.wantProblem(s.call(api.Viewer, "GET", "/v1/status?kind=a.b", ""), http.StatusBadRequest, "invalid")
}

// The lists of a status are bounded, and the answer names those that have more.
func TestStatusIsBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *api.Config) {
		c.Report = func(context.Context) (health.Report, error) {
			var r health.Report
			for i := range api.MaxList + 1 {
				k := ledger.Kind(fmt.Sprintf("a.k%d", i))
				r.Unhandled = append(r.Unhandled, operator.UnhandledKind{Kind: k})
			}
			return r, nil
		}
	})
	got := decode[struct {
		Unhandled []json.RawMessage
		Truncated []string
	}](s, s.call(api.Viewer, "GET", "/v1/status", ""), http.StatusOK)
	if len(got.Unhandled) != api.MaxList || !slices.Equal(got.Truncated, []string{"unhandled"}) {
		t.Errorf("%d items, truncated: %v", len(got.Unhandled), got.Truncated)
	}
}

// The list of conditions is bounded, and the answer reports whether there are more. No condition is an empty list.
func TestConditionsAreBounded(t *testing.T) {
	t.Parallel()
	for n, truncated := range map[int][]string{0: nil, api.MaxList: nil, api.MaxList + 1: {"items"}} {
		s := serve(t, func(c *api.Config) {
			c.Report = func(context.Context) (r health.Report, err error) {
				for i := range n {
					r.Degraded = append(r.Degraded, health.Condition{Name: health.RelayLag, About: fmt.Sprint(i)})
				}
				return r, nil
			}
		})
		got := decode[struct {
			Items     []json.RawMessage
			Truncated []string
		}](s, s.call(api.Viewer, "GET", "/v1/conditions", ""), http.StatusOK)
		if len(got.Items) != min(n, api.MaxList) || !slices.Equal(got.Truncated, truncated) {
			t.Errorf("of %d conditions %d items, truncated: %v", n, len(got.Items), got.Truncated)
		}
	}
}

// A caller that is limited to kinds has no status, because that is about all kinds. Requests share a report; a failed
// one is not kept.
func TestStatusIsShared(t *testing.T) {
	t.Parallel()
	var reads atomic.Int32
	var isAway atomic.Bool
	isAway.Store(true)
	s := serve(t, func(c *api.Config) {
		c.Report = func(context.Context) (health.Report, error) {
			if isAway.Load() {
				return health.Report{}, errors.Join(errors.New("read"), ledger.ErrUnavailable)
			}
			reads.Add(1)
			return health.Report{Degraded: []health.Condition{{Name: health.RelayLag, Text: "x", Cure: "y"}}}, nil
		}
	})
	_, secret, err := api.CreateToken(t.Context(), s.db, api.TokenOptions{Name: "shop", Role: api.Admin,
		Kinds: []string{"a.*"}})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["shop"] = secret
	s.wantProblem(s.call(api.Viewer, "GET", "/v1/status", ""), http.StatusServiceUnavailable, "unavailable")
	isAway.Store(false)
	const requests = 50
	for range requests {
		answer := s.call(api.Viewer, "GET", "/v1/conditions", "")
		list := decode[client.List[struct{ Name health.Name }]](s, answer, http.StatusOK)
		if len(list.Items) != 1 || list.Items[0].Name != health.RelayLag {
			t.Fatalf("got %s", answer.body)
		}
	}
	if n := reads.Load(); n == 0 || n >= requests {
		t.Errorf("%d reads for %d requests", n, requests)
	}
	for _, path := range []string{"/v1/status", "/v1/conditions"} {
		s.wantProblem(s.call("shop", "GET", path, ""), http.StatusForbidden, "kind_forbidden")
	}
}
